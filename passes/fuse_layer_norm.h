#pragma once
// Internal to passes/.

#include <coracle/passes/pass.h>

namespace coracle {

// elementwise_add + layer_norm, and the dropout of a term of the sum before them, become one
// fused_residual_layer_norm, and so do their gradients, with the sum that adds the gradient that
// comes from elsewhere.
void FuseLayerNorm(ProgramDesc& program, const PassContext& context);

}  // namespace coracle
