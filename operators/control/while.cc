// while: runs a block while a condition is true.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/control/block_gradient.h>
#include <coracle/operators/kernels/scalar_input.h>

#include <vector>

namespace coracle::while_op {

constexpr BlockOpSlots kSlots = {"Condition", "X", "StepScopes", true};

void InferWhile(InferContext& ctx) {
  const VarMeta& condition = ctx.Input("Condition");
  const bool one = !condition.shape.IsKnown() || condition.shape.numel() == 1;
  ctx.Require("C1", condition.type == VarType::kLoDTensor && condition.dtype == DType::kBool && one,
              condition);
  ctx.SetOutput("StepScopes", VarMeta{VarType::kStepScopes, DType::kFloat32, {}, 0});
}

Kernel While(const PrepareContext& ctx) {
  const int32_t block = ctx.SubBlock("sub_block");
  const TensorArg condition = ctx.Input("Condition"), scopes = ctx.Output("StepScopes");
  const bool saves = !ctx.Attr<bool>("is_test") && ctx.HasGradientBlock("sub_block");
  return [=](Workspace& ws) {
    StepScopes* steps = BeginSteps(ws, scopes);
    while (ReadBool(ws, condition, "while", "Condition")) RunAndSave(ws, block, saves, steps);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("while")
              .Doc("Runs sub_block while Condition is true; Condition is tested before each run. "
                   "The block can read and write variables of the blocks around it: X names those "
                   "that it reads, Out those that it writes; it may change their shapes. The "
                   "block's own variables have no value at the start of each run. If the program "
                   "differentiates the loop, StepScopes keeps those values of each run that "
                   "backward reads. The time limit of the run ends an infinite loop.")
              .Constraint("C1", "Condition must hold one bool")
              .OptionalVariadicInput("X", "variables that the block reads")
              .Input("Condition", "bool tensor of one element; the block writes it")
              .OptionalVariadicOutput("Out", "variables that the block writes")
              .IntermediateOutput("StepScopes", "values of each run that backward reads")
              .Attr<BlockRef>("sub_block", "the block")
              .Attr<bool>("is_test", false, "keep nothing for backward")
              .Attr<std::vector<std::string>>("skip_eager_deletion_vars", {}, "ignored")
              .NoGradientTo({"Condition"})
              .KeepsOutputs({"Out"})
              .RunsBlock({BlockRuns::kRepeatedly})
              .Infer(InferWhile)
              .Gradient([](GradientContext& g) { AppendBlockGradient(g, kSlots); })
              .Reference(While));
  ops.Add(BlockGradientOp("while", kSlots));
}

}  // namespace coracle::while_op
