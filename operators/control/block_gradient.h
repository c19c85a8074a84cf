#pragma once
// Gradients of ops that run a block a number of times (while: any number, conditional_block: at
// most once): rule and kernel of `while_grad` and `conditional_block_grad`.
//
// With s the variables that the block writes and c those that it only reads, one run is s' = f(s,
// c). Backward goes from the last run to the first: ds = (df/ds)^T ds', dc += (df/dc)^T ds'. If the
// block did not run, ds is the incoming gradient and dc is zero.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>

namespace coracle::inline internal {

// The names of an op's slots.
struct BlockOpSlots {
  const char* condition;  // "Condition", "Cond"
  const char* input;      // "X", "Input"
  const char* scopes;     // "StepScopes", "Scope"
  bool loop;              // the block's results are the next run's inputs
};

void AppendBlockGradient(GradientContext& g, const BlockOpSlots& slots);
// The declaration of `<type>_grad`.
OpDef BlockGradientOp(const std::string& type, const BlockOpSlots& slots);

// The forward op's StepScopes; empty in the first run, nullptr if the op has no such output.
StepScopes* BeginSteps(Workspace& ws, const TensorArg& scopes);
// Runs the block and counts the run in `steps` (may be nullptr). If `saves` is set, also saves the
// values that gradient blocks read.
void RunAndSave(Workspace& ws, int32_t block, bool saves, StepScopes* steps);

}  // namespace coracle::inline internal
