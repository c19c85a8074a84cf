#pragma once
// Loops over items of a batch on several threads, each with its own memory.

#include <coracle/framework/base/resource_limits.h>

#include <algorithm>
#include <cstdint>

namespace coracle::inline internal {

// The number of threads worth using for this many items and operations.
inline int64_t PartsOf(int64_t count, double work) {
  return std::min<int64_t>(
      count, work < 16384.0 * NumThreads() ? 1 + static_cast<int64_t>(work / 16384) : NumThreads());
}

// The number of steps between checks of the time limit, for a loop with `work` operations per step:
// a check about every 2^20 operations, so that a long item stops in time too.
inline int64_t StepsPerCheck(int64_t work) { return 1 + (int64_t{1} << 20) / (1 + work); }

// Calls run(item, part) for each item. Part p gets every parts-th item from p on, since long items
// may be adjacent; the calls of a part run one after the other.
template <class Run>
void ForEachItem(int64_t count, int64_t parts, const Run& run) {
  ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t i = part; i < count; i += parts) run(i, part);
    }
  });
}

}  // namespace coracle::inline internal
