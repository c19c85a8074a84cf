#pragma once
// Gradients of ops that run a block some number of times (while: any, conditional_block: at most
// once): rule and kernel of `while_grad` and `conditional_block_grad`.
//
// With s the variables that the block writes and c those that it only reads, one run is
// s' = f(s, c). Backward, from the last run to the first: ds = (df/ds)^T ds', dc += (df/dc)^T ds'.
// Without a run ds stays what arrived and dc is zero.

#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/op_def.h>

namespace coracle {

// The names of an op's slots.
struct BlockOpSlots {
  const char* condition;  // "Condition", "Cond"
  const char* input;      // "X", "Input"
  const char* scopes;     // "StepScopes", "Scope"
  bool loop;              // the block's results are the next run's inputs
};

void AppendBlockGradient(GradientContext& g, const BlockOpSlots& slots);
// `<type>_grad`.
OpDef BlockGradientOp(const std::string& type, const BlockOpSlots& slots);

// The forward op's StepScopes; empty for the first run, nullptr when the op has no such output.
StepScopes* BeginSteps(Workspace& ws, const TensorArg& scopes);
// Runs the block, and counts the run in `steps` (which may be nullptr); if `saves`, what gradient
// blocks read of the run is saved there.
void RunAndSave(Workspace& ws, int32_t block, bool saves, StepScopes* steps);

}  // namespace coracle
