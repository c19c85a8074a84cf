#pragma once
// A quoted text of several lines in a job.

#include <string>
#include <string_view>

namespace coracle::inline internal {

struct BlockedText {
  std::string text;
  int first_line = 0;  // the block's first line, from 1; 0: no block
};

// Splits the string of `field` into adjacent strings with one line each, since protobuf text has no
// strings of several lines. The string may be in single, double or triple double quotes, and lines
// keep their numbers. Within triple quotes, quotes and backslashes are plain characters. A string
// without an end is left unchanged.
BlockedText SplitBlock(std::string_view text, std::string_view field);

}  // namespace coracle::inline internal
