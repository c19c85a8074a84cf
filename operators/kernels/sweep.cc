#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/sweep.h>

#include <algorithm>

namespace coracle::inline internal {

Kernel Sweep(std::vector<TensorWork> work, int64_t grain) {
  std::vector<int64_t> ends;  // cumulative number of blocks after each tensor
  ends.reserve(work.size());
  int64_t blocks = 0;
  for (const TensorWork& tensor : work)
    ends.push_back(blocks += (tensor.numel + kSweepBlock - 1) / kSweepBlock);
  const int64_t blocks_per_thread = std::max<int64_t>(1, grain / kSweepBlock);
  return [=, work = std::move(work), ends = std::move(ends)](Workspace& ws) {
    ParallelFor(blocks, blocks_per_thread, [&](int64_t begin, int64_t end) {
      auto at =
          static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
      for (; begin < end; ++at) {
        const int64_t first = at == 0 ? 0 : ends[at - 1], stop = std::min(end, ends[at]);
        const TensorWork& tensor = work[at];
        if (begin < stop) {
          tensor.run(ws, (begin - first) * kSweepBlock,
                     std::min(tensor.numel, (stop - first) * kSweepBlock));
        }
        begin = stop;
      }
    });
    for (const TensorWork& tensor : work) {
      if (tensor.after) tensor.after(ws);
    }
  };
}

}  // namespace coracle::inline internal
