#pragma once
// Convolutions of channels-last images with few products for each output: depthwise ones, and those
// of one element. What follows their sums is done in registers, or row by row.

#include <coracle/operators/conv/conv.h>

namespace coracle {

// In float32; an empty Kernel when these loops do not take the case, or where oneDNN is faster, by
// a fixed rule.
Kernel ConvForwardDirect(const PrepareContext& ctx, const ConvGeometry& g,
                         const ConvForwardArgs& args);

// A transposed convolution whose windows lie side by side, as for upsampling by two: `g` is the
// convolution from its output to its input, as in conv2d_transpose.cc. Empty for other cases.
Kernel ConvTransposeDirect(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args);

}  // namespace coracle
