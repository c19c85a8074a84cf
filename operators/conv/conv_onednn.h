#pragma once
// The fast convolution on oneDNN: all layouts, groups, dilations.

#include <coracle/operators/conv/conv.h>

namespace coracle::inline internal {

// float32 or bfloat16 (summed in float32). Empty if oneDNN is off or has no primitive for
// this case.
Kernel ConvForwardOneDnn(const PrepareContext& ctx, const ConvGeometry& g,
                         const ConvForwardArgs& args);
Kernel ConvBackwardOneDnn(const PrepareContext& ctx, const ConvGeometry& g,
                          const ConvBackwardArgs& args);

}  // namespace coracle::inline internal
