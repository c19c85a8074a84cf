#pragma once
// The least and the largest of many numbers, in the widest SIMD of the machine.

#include <algorithm>
#include <cstdint>
#include <limits>

namespace coracle::inline internal {

// Of no numbers, `least` is greater than `most`. A nan is neither, but is noted.
struct FloatRange {
  float least = std::numeric_limits<float>::infinity();
  float most = -std::numeric_limits<float>::infinity();
  bool has_nan = false;

  void Add(FloatRange other) {
    if (other.least < least) least = other.least;
    if (other.most > most) most = other.most;
    has_nan = has_nan || other.has_nan;
  }
};

FloatRange RangeOf(const float* x, int64_t n);

}  // namespace coracle::inline internal
