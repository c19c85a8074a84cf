#pragma once
// Convolutions with constant filters as products of the filter with windows of the image, which are
// read where they are (implicit gemm). In float32, channels last.

#include <coracle/operators/conv/conv.h>

namespace coracle {

// An empty Kernel where the filter is no constant, for grouped convolutions and other layouts; if
// `by_rule`, also where other kernels are about as fast.
Kernel ConvForwardImplicit(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args, bool by_rule);

}  // namespace coracle
