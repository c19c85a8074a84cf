#pragma once
// Convolutions with constant filters as matrix products of the filter with windows of the image,
// which are read in place (implicit GEMM). Float32, channels last.

#include <coracle/operators/conv/conv.h>

namespace coracle::inline internal {

// An empty Kernel if the filter is not constant, for grouped convolutions and other layouts; with
// `by_rule`, also where other kernels are about as fast.
Kernel ConvForwardImplicit(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args, bool by_rule);

}  // namespace coracle::inline internal
