#pragma once
// The bounds of a slice along one axis.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace coracle::inline internal {

// The elements start, start + step, ... (count of them) of one axis.
struct AxisRange {
  int64_t start = 0, step = 1, count = 0;
};

// Bounds as in Python: negative ones count from the end, then they are clamped. With a negative
// step, an end of -1 means before element 0 (Paddle's form of Python's None). `single` is set for
// an axis that will be dropped: there [-1, 0) means the last element, like x[-1]. REQUIRES: step is
// not 0.
inline AxisRange MakeRange(int64_t dim, int64_t start, int64_t end, int64_t step, bool single) {
  if (single && start == -1 && end == 0) return {dim - 1, 1, dim > 0 ? 1 : 0};
  step = std::max(step, -std::numeric_limits<int64_t>::max());
  if (start < 0) start += dim;
  if (end < 0 && !(end == -1 && step < 0)) end += dim;
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? dim : dim - 1;
  start = std::clamp(start, low, high);
  end = std::clamp(end, low, high);
  const int64_t span = step > 0 ? end - start : start - end;
  return {start, step, span > 0 ? 1 + (span - 1) / std::abs(step) : 0};
}

}  // namespace coracle::inline internal
