#pragma once
// Times the ways to compute an op, for CompileOptions::tune. Internal to executor/.

#include <coracle/framework/op/prepare_context.h>

#include <string>
#include <vector>

namespace coracle {

// The kernels' times on drawn elements, in memory of their own.
struct KernelTrials {
  int fastest = -1;      // index of the way; -1: none can be tried, so that the rules must choose
  bool by_rule = false;  // what it was prepared with
  std::string told;      // "winograd 1.2 ms, onednn 1.9 ms"
};

// Tries each way that is for this case, with as many threads as a run would have. The way that the
// rules prefer stays unless another is at least a twentieth faster. Results are kept for the
// process, 4096 of them at most: ops of the same type, attrs, tensors and number of threads are
// tried once. Waits for trials of other threads, since they would disturb each other.
KernelTrials TryKernels(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                        const std::vector<KernelWay>& ways);

}  // namespace coracle
