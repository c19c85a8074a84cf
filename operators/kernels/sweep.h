#pragma once
// An op's work on one tensor, or on all of its items (OpDef::MultiTensor), as one sweep over all
// elements that its threads share evenly.

#include <coracle/framework/op/prepare_context.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace coracle {

inline constexpr int64_t kSweepBlock = 4096;

struct TensorWork {
  int64_t numel = 0;
  // On the elements [begin, end): whole blocks of kSweepBlock but for the tensor's last. Called by
  // several threads at a time, and again for the next range.
  std::function<void(Workspace&, int64_t begin, int64_t end)> run;
  Kernel after;  // once, when all elements of all tensors are done; may be empty
};

// The kernel. `grain`: elements that are worth a thread.
Kernel Sweep(std::vector<TensorWork> work, int64_t grain);

// The sweep over make(item) for each item of the op.
template <class Make>
Kernel SweepItems(const PrepareContext& ctx, int64_t grain, Make make) {
  std::vector<TensorWork> work;
  work.reserve(ctx.NumItems());
  for (size_t i = 0; i < ctx.NumItems(); ++i) work.push_back(make(ctx.Item(i)));
  return Sweep(std::move(work), grain);
}

}  // namespace coracle
