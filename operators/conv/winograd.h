#pragma once
// Convolutions of 3 x 3 kernels with fewer products (Winograd's method): F(2x2, 3x3) and F(4x4,
// 3x3), used where they are faster than direct ones. Float32, channels last, stride 1, dilation 1
// and one group.
//
// Errors relative to the largest result, on normally distributed data: with 2 x 2 tiles 2e-7 (16
// channels) to 9e-7 (512), like a direct sum; with 4 x 4 tiles 1e-6 to 5e-6. An infinity or nan
// reaches all results of the tiles that read it.
//
// Scratch memory in floats, with P = 16 or 36 positions of a tile, C channels of inputs and M of
// outputs:
//   forward, for each thread           about 48 P (C + 32)
//   forward, the filter                P C M; 32 P C for each thread if it is read only once
//   filter gradient, for each thread   48 P (C + M), and P C M if threads sum different tiles,
//                                      32 P C if all tiles are summed at once
// A constant filter is kept in P C M floats instead, and about 9 C M bytes restore its elements.

#include <coracle/operators/conv/conv.h>

namespace coracle::inline internal {

// The kernel of the forward pass. Empty if it does not support the case or, with `by_rule`, if it
// would not be faster.
Kernel ConvForwardWinograd(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvForwardArgs& args, bool by_rule);
// The kernel of the gradients. A gradient that would not be faster is left to ConvBackwardFast.
Kernel ConvBackwardWinograd(const PrepareContext& ctx, const ConvGeometry& g,
                            const ConvBackwardArgs& args, bool by_rule);

}  // namespace coracle::inline internal
