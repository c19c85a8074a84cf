// while: runs a block as long as a condition holds.

#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/outer_path.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/common/block_gradient.h>
#include <coracle/operators/common/values.h>

#include <algorithm>
#include <unordered_set>

namespace coracle {
namespace {

constexpr BlockOpSlots kSlots = {"Condition", "X", "StepScopes", true};

using Names = std::vector<std::string>;

bool IsFloatingVar(const BlockDesc& block, const std::string& name) {
  const VarDesc* var = block.FindVarRecursive(name);
  return var && (!IsValid(var->dtype()) || IsFloating(var->dtype()));
}

// The variables that one round of the block makes from `inputs`, as far as gradients go.
std::unordered_set<std::string_view> MadeFrom(const BlockDesc& block, const Names& inputs) {
  std::unordered_set<std::string_view> made(inputs.begin(), inputs.end());
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    bool reads = false;
    for (const Slot& slot : op.inputs()) {
      for (const std::string& name : slot.args) reads |= made.count(name) > 0;
    }
    for (const Slot& slot : op.outputs()) {
      for (const std::string& name : slot.args) {
        if (reads && IsFloatingVar(block, name))
          made.insert(name);
        else
          made.erase(name);
      }
    }
  }
  return made;
}

// A gradient taken inside knows nothing of the rounds before, which may have made what it is of.
void RequireNoRoundsBefore(InferContext& ctx, const BlockDesc& block, const OpDesc& gradient,
                           const Names& written) {
  const auto made = MadeFrom(block, gradient.GetAttr<Names>(kOuterInputsAttr, {}));
  for (const std::string& name : gradient.GetAttr<Names>(kOuterReadsAttr, {})) {
    if (!made.count(name) || std::find(written.begin(), written.end(), name) == written.end())
      continue;
    ctx.FailText("C2", "a gradient taken in the block must not pass to what the loop changes",
                 "the path through " + Quote(name) + ", which the rounds before made");
  }
}

// A gradient taken inside counts on what was computed around the loop.
void RequireUnchanged(InferContext& ctx) {
  const BlockDesc* home = ctx.op().block();
  const int32_t idx = ctx.Attr<BlockRef>("sub_block").idx;
  if (!home || idx <= 0 || idx >= home->program().NumBlocks()) return;
  const BlockDesc& block = home->program().Block(idx);
  const std::vector<std::string>& written = ctx.op().Output("Out");
  for (size_t i = 0; i < block.NumOps(); ++i) {
    if (block.op(i).HasAttr(kOuterReadsAttr))
      RequireNoRoundsBefore(ctx, block, block.op(i), written);
    if (!block.op(i).HasAttr(kOuterPathAttr)) continue;
    for (const std::string& name :
         block.op(i).GetAttr<std::vector<std::string>>(kOuterPathAttr, {})) {
      if (std::find(written.begin(), written.end(), name) == written.end()) continue;
      ctx.FailText("C2", "a gradient taken in the block must not pass to what the loop changes",
                   "the path through " + Quote(name));
    }
  }
}

void InferWhile(InferContext& ctx) {
  const VarMeta& condition = ctx.Input("Condition");
  const bool one = !condition.shape.IsKnown() || condition.shape.numel() == 1;
  if (condition.type != VarType::kLoDTensor || condition.dtype != DType::kBool || !one)
    ctx.FailText("C1", "Condition must hold one bool", condition.ToString());
  if (!ctx.exact()) RequireUnchanged(ctx);
  ctx.SetOutput("StepScopes", VarMeta{VarType::kStepScopes, DType::kFloat32, {}, 0});
}

Kernel While(const PrepareContext& ctx) {
  const int32_t block = ctx.SubBlock("sub_block");
  const TensorArg condition = ctx.Input("Condition"), scopes = ctx.Output("StepScopes");
  const bool keeps = !ctx.Attr<bool>("is_test") && ctx.HasGradientBlock("sub_block");
  return [=](Workspace& ws) {
    StepScopes* steps = BeginSteps(ws, scopes);
    while (ReadBool(ws, condition, "while", "Condition")) RunKept(ws, block, keeps, steps);
  };
}

}  // namespace

void RegisterWhile(OpRegistry& ops) {
  ops.Add(
      OpDef("while")
          .Doc("Runs sub_block again and again while Condition is true; it is read before each "
               "run. The block reads the variables of the blocks around it and writes them; "
               "X names those that it reads, Out those that it writes, of which it may change "
               "the shape too. Variables of its own begin each run without value. When the "
               "program differentiates the loop, StepScopes keeps of each run what backward "
               "reads, and no more. A loop that does not end is ended by the run's time limit. C1: "
               "Condition holds one bool. C2: a gradient that was taken in the block does not "
               "pass outside, or to rounds before, through a variable that the loop changes.")
          .OptionalVariadicInput("X", "variables that the block reads")
          .Input("Condition", "bool tensor of one element; the block writes it")
          .OptionalVariadicOutput("Out", "variables that the block writes")
          .IntermediateOutput("StepScopes", "what backward reads of each run")
          .Attr<BlockRef>("sub_block", "the block")
          .Attr<bool>("is_test", false, "keep nothing for backward")
          .Attr<std::vector<std::string>>("skip_eager_deletion_vars", {}, "ignored")
          .NoGradientTo({"Condition"})
          .KeepsOutputs({"Out"})
          .Infer(InferWhile)
          .Gradient([](GradientContext& g) { AppendBlockGradient(g, kSlots); })
          .Reference(While));
  ops.Add(BlockGradientOp("while", kSlots));
}

}  // namespace coracle
