#pragma once
// Sums of numbers given by their logarithms.

#include <cmath>
#include <cstdint>

namespace coracle::inline internal {

// log(sum of exp(value(i)) for i < n), without overflow; nan if a value is nan. REQUIRES: n > 0.
template <class Value>
double LogSum(int64_t n, const Value& value) {
  double max = value(0);
  for (int64_t i = 1; i < n; ++i) {
    const double next = value(i);
    if (next > max || std::isnan(next)) max = next;
  }
  if (!std::isfinite(max)) return max;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(value(i) - max);
  return max + std::log(sum);
}

}  // namespace coracle::inline internal
