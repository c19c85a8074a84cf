#pragma once
// Substitutes the counters of repeats in the strings of model text.

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

// The counter of a repeat, with its name in strings.
struct Index {
  std::string name;
  int64_t value;
};

// Replaces "$i", "${i}", "${i+1}" and "${i-1}" in `text`, and "$$" by a dollar. Outside a
// repeat (no indices) a dollar is an ordinary character. A name without braces ends where
// letters and digits end; if two indices have the same name, the later one counts. Throws
// LocatedError at `where`.
std::string ExpandIndices(const std::string& text, const std::vector<Index>& indices,
                          const std::string& where);

}  // namespace coracle::inline internal
