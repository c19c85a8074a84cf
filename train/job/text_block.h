#pragma once
// A quoted text that goes over several lines of a job.

#include <string>
#include <string_view>

namespace coracle {

struct BlockedText {
  std::string text;
  int first_line = 0;  // where the block begins, from 1; 0: there is none
};

// protobuf text has no such thing, so the string of the field `field`, in single, double or triple
// double quotes, is made one of several adjacent strings, a line each. Lines keep their numbers. In
// triple quotes nothing else is special: neither quotes nor backslashes. A string without its end
// stays as it is.
BlockedText SplitBlock(std::string_view text, std::string_view field);

}  // namespace coracle
