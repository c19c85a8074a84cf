#pragma once
// An op's work on one tensor, or on all of its items (OpDef::MultiTensor), as one sweep over all
// elements that is distributed evenly over the threads.

#include <coracle/framework/op/op_context.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace coracle::inline internal {

inline constexpr int64_t kSweepBlock = 4096;

struct TensorWork {
  int64_t numel = 0;
  // Processes the elements [begin, end): whole blocks of kSweepBlock, except for the tensor's last
  // one. Called by several threads at a time, and repeatedly.
  std::function<void(Workspace&, int64_t begin, int64_t end)> run;
  Kernel after;  // called once after all elements of all tensors; may be empty
};

// The kernel. `grain`: number of elements per task.
Kernel Sweep(std::vector<TensorWork> work, int64_t grain);

// The sweep over make(item) for each item of the op.
template <class Make>
Kernel SweepItems(const PrepareContext& ctx, int64_t grain, Make make) {
  std::vector<TensorWork> work;
  work.reserve(ctx.NumItems());
  for (size_t i = 0; i < ctx.NumItems(); ++i) work.push_back(make(ctx.Item(i)));
  return Sweep(std::move(work), grain);
}

}  // namespace coracle::inline internal
