// conditional_block: runs a block once, or not at all.

#include <coracle/framework/op/check/block_use.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/control/block_gradient.h>
#include <coracle/operators/control/conditional_block.h>
#include <coracle/operators/kernels/scalar_input.h>

#include <algorithm>

namespace coracle::inline internal {

OpDesc ConditionalBlockOp(BlockDesc& block, const std::string& condition) {
  BlockDesc& outer = *block.parent();
  VarDesc& scope = outer.Var(outer.program().UniqueName("conditional_block.scope"));
  scope.SetType(VarType::kStepScopes);
  return OpDesc("conditional_block", {{"Cond", {condition}}, {"Input", OuterReads(block)}},
                {{"Out", OuterWrites(block)}, {"Scope", {scope.name()}}},
                {{"sub_block", BlockRef{block.idx()}}, {"is_scalar_condition", true}});
}

}  // namespace coracle::inline internal

namespace coracle::conditional_block_op {

constexpr BlockOpSlots kSlots = {"Cond", "Input", "Scope", false};

void InferConditionalBlock(InferContext& ctx) {
  if (ctx.Attr<bool>("is_scalar_condition")) {
    ctx.Require("C1", ctx.NumInputs("Cond") == 1, ctx.NumInputs("Cond"));
    const VarMeta& cond = ctx.Input("Cond");
    const bool one = !cond.shape.IsKnown() || cond.shape.numel() == 1;
    ctx.Require("C2", cond.type == VarType::kLoDTensor && cond.dtype == DType::kBool && one, cond);
  }
  ctx.SetOutput("Scope", VarMeta{VarType::kStepScopes, DType::kFloat32, {}, 0});
}

bool HasElements(Workspace& ws, const TensorArg& arg) {
  const auto* tensor = std::get_if<Tensor>(&ws.ValueOf(arg));
  return !tensor || !tensor->empty();
}

Kernel ConditionalBlock(const PrepareContext& ctx) {
  const int32_t block = ctx.SubBlock("sub_block");
  const std::vector<TensorArg> cond = ctx.Inputs("Cond"), inputs = ctx.Inputs("Input");
  const TensorArg scope = ctx.Output("Scope");
  const bool scalar = ctx.Attr<bool>("is_scalar_condition");
  const bool saves = ctx.HasGradientBlock("sub_block");
  return [=](Workspace& ws) {
    StepScopes* steps = BeginSteps(ws, scope);
    const bool runs = scalar ? ReadBool(ws, cond[0], "conditional_block", "Cond")
                             : std::all_of(cond.begin(), cond.end(), [&](const TensorArg& arg) {
                                 return !arg || HasElements(ws, arg);
                               });
    if (runs) RunAndSave(ws, block, saves, steps);
  };
}

// Throws when it runs, so that an importer can keep a branch that it cannot translate.
Kernel BranchError(const PrepareContext& ctx) {
  const std::string message = ctx.Attr<std::string>("message");
  return [=](Workspace&) { throw Error(ErrorCode::kUnimplemented, message); };
}

void InferBranchError(InferContext& ctx) {
  for (size_t i = 0; i < ctx.NumOutputs("Out"); ++i)
    if (const VarMeta* declared = ctx.DeclaredOutput("Out", i)) ctx.SetOutput("Out", *declared, i);
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("branch_error")
              .Doc("Stops the run with attr message. It is the body of a branch that an importer "
                   "could not translate; not in Paddle.")
              .OptionalVariadicOutput("Out", "what the branch would give, of the declared types")
              .Attr<std::string>("message", "why the branch cannot run")
              .RunTimeShape()
              .SideEffect()
              .NotDifferentiable("it never gives a result")
              .Rows(RowRule::kMixes)
              .Infer(InferBranchError)
              .Reference(BranchError));
  ops.Add(OpDef("conditional_block")
              .Doc("Runs sub_block once if Cond is true (is_scalar_condition), or if every "
                   "variable of Cond has elements; else Out is unchanged. If the block did not "
                   "run, the gradients of its inputs are zero.")
              .Constraint("C1", "with is_scalar_condition, Cond must be one variable")
              .Constraint("C2", "with is_scalar_condition, Cond must hold one bool")
              .VariadicInput("Cond", "one bool, or tensors that are tested for having elements")
              .OptionalVariadicInput("Input", "variables that the block reads")
              .OptionalVariadicOutput("Out", "variables that the block writes")
              .IntermediateOutput("Scope", "values of the run that backward reads")
              .Attr<BlockRef>("sub_block", "the block")
              .Attr<bool>("is_scalar_condition", false, "whether Cond is one bool")
              .Attr<std::vector<std::string>>("skip_eager_deletion_vars", {}, "ignored")
              .NoGradientTo({"Cond"})
              .KeepsOutputs({"Out"})
              .RunsBlock({BlockRuns::kOnce})
              .Infer(InferConditionalBlock)
              .Gradient([](GradientContext& g) { AppendBlockGradient(g, kSlots); })
              .Reference(ConditionalBlock));
  ops.Add(BlockGradientOp("conditional_block", kSlots));
}

}  // namespace coracle::conditional_block_op
