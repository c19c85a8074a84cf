#pragma once
// Lists of names and of patterns.

#include <coracle/optimizer/optimizer.h>

#include <algorithm>
#include <string>
#include <vector>

namespace coracle::inline internal {

inline bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// See MatchesPattern.
inline bool MatchesAny(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return MatchesPattern(name, pattern); });
}

}  // namespace coracle::inline internal
