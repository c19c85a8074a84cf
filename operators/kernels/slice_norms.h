#pragma once
// L2 norms over some dims of a row-major tensor.

#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/reduce.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace coracle {

// Calls store(j, norm) with the ScaledNorm of the elements of output j in `in`, for each j, on any
// thread. If kept elements are adjacent, rows of them are summed together, in memory order.
template <class T, class Store>
void ForEachL2Norm(const ReduceNest& nest, const T* in, const Store& store) {
  constexpr int64_t kBlock = 256;
  const auto square = [in](int64_t at) {
    const auto d = static_cast<double>(in[at]);
    return d * d;
  };
  if (nest.inner_reduced || nest.kept.rank == 0) {
    ForEachOutput(nest, [&](int64_t j, const auto& each) {
      store(j, ScaledNormOf(2, [&](const auto& f) {
              each([&](int64_t at) { f(static_cast<double>(in[at])); });
            }));
    });
    return;
  }
  Dims outer = nest.kept;  // without the innermost dim
  const int64_t width = outer.size[--outer.rank];
  const int64_t blocks = (width + kBlock - 1) / kBlock;
  const int64_t tasks = width == 0 ? 0 : nest.out_numel / width * blocks;
  const int64_t grain = 1 + 32768 / (1 + nest.reduced_numel * std::min(width, kBlock));
  ParallelFor(tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / blocks, first = task % blocks * kBlock;
      const int64_t n = std::min(kBlock, width - first);
      const int64_t base = DimsWalk(outer, row).offset() + first;
      double sums[kBlock] = {};
      DimsWalk reduced(nest.reduced, 0);
      for (int64_t r = 0; r < nest.reduced_numel; ++r, reduced.Next()) {
        const int64_t at = base + reduced.offset();
        for (int64_t i = 0; i < n; ++i) sums[i] += square(at + i);
      }
      for (int64_t i = 0; i < n; ++i) {
        const int64_t j = row * width + first + i;
        if (IsSafeSum(sums[i]) || std::isnan(sums[i])) {
          store(j, ScaledNorm{1, std::sqrt(sums[i])});
          continue;
        }
        store(j, RescaledNormOf(2, [&](const auto& f) {
                DimsWalk walk(nest.reduced, 0);
                for (int64_t r = 0; r < nest.reduced_numel; ++r, walk.Next())
                  f(static_cast<double>(in[base + i + walk.offset()]));
              }));
      }
    }
  });
}

}  // namespace coracle
