#pragma once
// Convolutions of images of 16 bits by the float32 kernels, a part at a time: what a part reads and
// writes is converted while it is in the cache.

#include <coracle/operators/conv/conv.h>

namespace coracle {

// Input, residual and output (dout and dinput) are float16 or bfloat16, the other args float32. The
// filter's gradients of the parts are added up in float32. Empty where there is no float32 kernel.
Kernel ConvForwardOfHalves(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args);
Kernel ConvBackwardOfHalves(const PrepareContext& ctx, const ConvGeometry& g,
                            const ConvBackwardArgs& args);

}  // namespace coracle
