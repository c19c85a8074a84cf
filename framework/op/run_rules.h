#pragma once
// Runs the rules that an op's declaration holds.

#include <coracle/framework/op/op_spec.h>

namespace coracle {

// The shape rule, if there is one. Throws kInvalidArgument for an attr outside of its limits, and
// for an operand that the op does not take, or of an element type that no kernel has.
void RunInfer(InferContext& context);

// The gradient rule of the context's op. Throws kUnimplemented when it has none.
void RunGradient(const OpSpec& spec, GradientContext& context);

}  // namespace coracle
