#pragma once
// Converts 64-bit numbers of a file to the 32-bit numbers of attrs; values that do not fit are
// rejected instead of truncated.

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Throw kInvalidArgument "<what> of 4294967302 is beyond the range of int32".
int32_t ToInt32(int64_t value, const std::string& what);
std::vector<int32_t> ToInt32(const std::vector<int64_t>& values, const std::string& what);

}  // namespace coracle::inline internal
