#pragma once
// Convolutions of channels-last images with few products for each output: depthwise and 1 x 1.
// Bias, residual and activation are applied in registers, or row by row.

#include <coracle/operators/conv/conv.h>

namespace coracle::inline internal {

// Float32 only. Returns an empty Kernel if these loops do not support the case, or if oneDNN is
// faster according to a fixed rule.
Kernel ConvForwardDirect(const PrepareContext& ctx, const ConvGeometry& g,
                         const ConvForwardArgs& args);

// A transposed convolution whose windows are adjacent, as for upsampling by two: `g` is the
// convolution from its output to its input, as in conv2d_transpose.cc. Empty for other cases.
Kernel ConvTransposeDirect(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args);

}  // namespace coracle::inline internal
