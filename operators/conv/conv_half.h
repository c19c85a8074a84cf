#pragma once
// Convolutions of 16-bit images with the float32 kernels, one part at a time: inputs and outputs of
// a part are converted while they are in the cache.

#include <coracle/operators/conv/conv.h>

namespace coracle::inline internal {

// Input, residual and output (dout and dinput) are float16 or bfloat16, the other args float32. The
// filter gradients of the parts are added in float32. Empty if there is no float32 kernel.
Kernel ConvForwardOfHalves(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args);
Kernel ConvBackwardOfHalves(const PrepareContext& ctx, const ConvGeometry& g,
                            const ConvBackwardArgs& args);

}  // namespace coracle::inline internal
