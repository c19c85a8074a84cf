#pragma once
// Hyper-parameters of update ops: float attrs, which a float64 update reads as the decimal numbers
// that they were written as.

#include <coracle/framework/op/op_context.h>

namespace coracle::inline internal {

// The attr for the kernel with Param's dtype. A float32 (or narrower) parameter uses the float. For
// a float64 parameter, 0.9f, which is 0.89999998, means 0.9: the shortest decimal number that
// rounds to the float. So a float64 update has the accuracy of float64.
double HyperParameter(const PrepareContext& ctx, const char* attr);

}  // namespace coracle::inline internal
