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
#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle {
namespace {

constexpr BlockOpSlots kSlots = {"Condition", "X", "StepScopes", true};

using Names = std::vector<std::string>;

bool IsFloatingVar(const BlockDesc& block, const std::string& name) {
  const VarDesc* var = block.FindVarRecursive(name);
  return var && (!IsValid(var->dtype()) || IsFloating(var->dtype()));
}

// The variables that rounds of the block make of `inputs`, as far as gradients go, in whatever
// order its ops stand: what one round makes the next one reads.
std::unordered_set<std::string_view> MadeFrom(const BlockDesc& block, const Names& inputs) {
  std::unordered_map<std::string_view, std::vector<const OpDesc*>> readers;
  for (size_t i = 0; i < block.NumOps(); ++i) {
    for (const Slot& slot : block.op(i).inputs()) {
      for (const std::string& name : slot.args) readers[name].push_back(&block.op(i));
    }
  }
  std::unordered_set<std::string_view> made(inputs.begin(), inputs.end());
  std::vector<std::string_view> next(made.begin(), made.end());
  std::unordered_set<const OpDesc*> followed;
  auto follow = [&](const OpDesc& op) {
    for (const Slot& slot : op.outputs()) {
      for (const std::string& name : slot.args) {
        if (IsFloatingVar(block, name) && made.insert(name).second) next.push_back(name);
      }
    }
  };
  while (!next.empty()) {
    const std::string_view name = next.back();
    next.pop_back();
    for (const OpDesc* op : readers[name]) {
      if (followed.insert(op).second) follow(*op);
    }
  }
  return made;
}

// The names that such an attr holds, over all gradients that were taken in the block.
Names NamesIn(const BlockDesc& block, const char* attr) {
  Names all;
  for (size_t i = 0; i < block.NumOps(); ++i) {
    if (!block.op(i).HasAttr(attr)) continue;
    const Names names = block.op(i).GetAttr<Names>(attr, {});
    all.insert(all.end(), names.begin(), names.end());
  }
  return all;
}

// A gradient taken inside counts on what was computed around the loop, and knows nothing of rounds
// before that made what it is of.
void RequireUnchanged(InferContext& ctx) {
  const BlockDesc* home = ctx.op().block();
  const int32_t idx = ctx.Attr<BlockRef>("sub_block").idx;
  if (!home || idx <= 0 || idx >= home->program().NumBlocks()) return;
  const BlockDesc& block = home->program().Block(idx);
  const Names &out = ctx.op().Output("Out"), reads = NamesIn(block, kOuterReadsAttr);
  const std::unordered_set<std::string_view> written(out.begin(), out.end());
  const char* rule = "a gradient taken in the block must not pass to what the loop changes";
  for (const std::string& name : NamesIn(block, kOuterPathAttr)) {
    if (written.count(name)) ctx.FailText("C2", rule, "the path through " + Quote(name));
  }
  if (reads.empty()) return;
  const auto made = MadeFrom(block, NamesIn(block, kOuterInputsAttr));
  for (const std::string& name : reads) {
    if (!written.count(name) || !made.count(name)) continue;
    ctx.FailText("C2", rule,
                 fmt::format("the path through {}, which the rounds before made; put {} into "
                             "stop_gradients for the gradient of one round",
                             Quote(name), Quote(name)));
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
