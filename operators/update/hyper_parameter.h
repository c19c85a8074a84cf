#pragma once
// Hyper-parameters of update ops: float attrs (programs keep them so), which a float64 update reads
// as the decimal number that was meant.

#include <coracle/framework/op/prepare_context.h>

namespace coracle {

// The attr as the kernel for Param's dtype shall use it. A float32 (or narrower) parameter takes
// the float; for a float64 parameter 0.9f, which is 0.89999998, stands for 0.9: the shortest
// decimal number that rounds to the float. So a float64 update has the accuracy of float64.
double HyperParameter(const PrepareContext& ctx, const char* attr);

}  // namespace coracle
