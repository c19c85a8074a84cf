#pragma once
// The numbers that repeats count, in the strings of model text.

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

// A number that a repeat counts, by its name in strings.
struct Index {
  std::string name;
  int64_t value;
};

// `text` with "$i", "${i}", "${i+1}" and "${i-1}" replaced, "$$" by a dollar; outside a repeat (no
// indices) a dollar is an ordinary character. A name without braces ends where letters and digits
// end; of two indices of one name the later counts. Throws LocatedError at `where`.
std::string ExpandIndices(const std::string& text, const std::vector<Index>& indices,
                          const std::string& where);

}  // namespace coracle
