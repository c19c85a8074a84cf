#pragma once
// Times the possible kernels of an op, for CompileOptions::tune. Internal to executor/.

#include <coracle/framework/op/op_context.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// The result of timing the kernels on random elements, in separate memory.
struct KernelTrials {
  // Index of the way; -1: none can be tried, so the fixed rules must choose.
  int fastest = -1;
  bool by_rule = false;  // the argument it was prepared with
  std::string times;     // "winograd 1.2 ms, onednn 1.9 ms"
};

// Tries each way that supports the case, with as many threads as a run would have. The way
// preferred by the rules is kept unless another is at least 5 % faster. The process caches up to
// 4096 results: ops with the same type, attrs, tensors and number of threads are tried once. Waits
// for trials of other threads, since concurrent trials would disturb each other.
KernelTrials TryKernels(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                        const std::vector<KernelWay>& ways);

}  // namespace coracle::inline internal
