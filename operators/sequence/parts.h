#pragma once
// Items of a batch that several threads work on, each with memory of its own.

#include <coracle/framework/base/resource_limits.h>

#include <algorithm>
#include <cstdint>

namespace coracle {

// How many threads are worth it for so many items and operations.
inline int64_t PartsOf(int64_t count, double work) {
  return std::min<int64_t>(
      count, work < 16384.0 * NumThreads() ? 1 + static_cast<int64_t>(work / 16384) : NumThreads());
}

// A loop whose steps take so many operations checks the time limit every so many steps: about every
// 2^20 operations, so that a long item stops in time too.
inline int64_t StepsPerCheck(int64_t work) { return 1 + (int64_t{1} << 20) / (1 + work); }

// run(item, part) for each item. Part p gets every parts-th item from p on, since long ones may
// stand together, and its calls follow one another.
template <class Run>
void ForEachItem(int64_t count, int64_t parts, const Run& run) {
  ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t i = part; i < count; i += parts) run(i, part);
    }
  });
}

}  // namespace coracle
