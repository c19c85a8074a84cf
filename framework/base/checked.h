#pragma once
// Sums and products of sizes from a program, a file or a flag. They throw instead of wrapping.

#include <cstdint>

namespace coracle::inline internal {

// Throw OutOfMemory "a * b passes the range of 64-bit integers".
int64_t CheckedAdd(int64_t a, int64_t b);
int64_t CheckedMul(int64_t a, int64_t b);
template <class... More>
int64_t CheckedMul(int64_t a, int64_t b, More... more) {
  return CheckedMul(CheckedMul(a, b), more...);
}

}  // namespace coracle::inline internal
