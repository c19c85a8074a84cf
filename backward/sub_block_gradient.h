#pragma once
// The gradient of a sub-block: a block of gradient ops, made while the gradient rule of the op that
// runs the sub-block runs.

#include <coracle/backward/gradient_ops.h>

namespace coracle::internal {

// Appends the gradient block of request.forward_block; `parent` is the block of the gradient op.
// `outer_value` tells the name under which to read what a variable around the sub-block held when
// the op began. Of every input that has a gradient, but is in `unlisted`, an error tells.
GradientBlock AppendSubBlockGradient(BackwardRun& run, BlockDesc& parent,
                                     const GradientBlockRequest& request,
                                     GradientOps::OuterValue outer_value);

}  // namespace coracle::internal
