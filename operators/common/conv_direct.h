#pragma once
// The direct convolution for images of few channels (the first layer of a network), channels last,
// without padding: all output channels of a few pixels stay in registers while the taps of the
// filter go by. oneDNN blocks over input channels and leaves most of a vector empty there.

#include <coracle/operators/common/conv.h>

namespace coracle {

// Empty when the case is none for it: padding, dilation, groups, a large filter, or many output
// channels.
Kernel ConvForwardDirect(const PrepareContext& ctx, const ConvGeometry& g,
                         const ConvForwardArgs& args);
// The gradients of filter and bias; empty when the input's is wanted too.
Kernel ConvBackwardDirect(const PrepareContext& ctx, const ConvGeometry& g,
                          const ConvBackwardArgs& args);

}  // namespace coracle
