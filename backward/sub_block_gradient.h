#pragma once
// The gradient of a sub-block: a block of gradient ops, made during the gradient rule of the op
// that runs the sub-block.

#include <coracle/backward/gradient_ops.h>

namespace coracle::inline internal {

// Appends the gradient block of request.forward_block; `parent` is the block of the gradient op.
// `outer_value` returns the name under which to read the value that an outer variable had when the
// op began.
GradientBlock AppendSubBlockGradient(BackwardRun& run, BlockDesc& parent,
                                     const GradientBlockRequest& request,
                                     GradientOps::OuterValue outer_value);

}  // namespace coracle::inline internal
