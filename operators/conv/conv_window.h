#pragma once
// Convolution of channels-last images without a lowered copy of the input: in this layout the
// kw * C inputs of one kernel row are contiguous, so that forward, data gradient and filter
// gradient are all sums of small matrix products on the images themselves. Pays where
// channel counts are not multiples of a vector (oneDNN's blocked layouts pad them) or the
// input has few channels.

#include <coracle/operators/conv/conv.h>

namespace coracle::inline internal {

// Whether layout, groups and dilation are supported.
bool ConvWindowTakes(const ConvGeometry& g);
// Whether it is faster than oneDNN according to a fixed rule, so that results do not depend
// on timings.
bool ConvWindowPays(const ConvGeometry& g, bool forward);

// REQUIRES: ConvWindowTakes(g), and no dimension is zero.
Kernel ConvForwardWindow(const PrepareContext& ctx, const ConvGeometry& g,
                         const ConvForwardArgs& args);
Kernel ConvBackwardWindow(const PrepareContext& ctx, const ConvGeometry& g,
                          const ConvBackwardArgs& args);

}  // namespace coracle::inline internal
