#pragma once
// Runs the rules of an op's declaration.

#include <coracle/framework/op/op_def.h>

namespace coracle::inline internal {

// Runs the shape rule, if there is one. Throws kInvalidArgument for an attr outside its limits, and
// for an operand that the op does not take or whose element type has no kernel.
void RunInfer(InferContext& context);

// Runs the gradient rule of the context's op. Throws kUnimplemented if it has none.
void RunGradient(const OpSpec& spec, GradientContext& context);

}  // namespace coracle::inline internal
