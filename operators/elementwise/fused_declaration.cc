// Declarations shared by the ops that run groups.
#include <coracle/framework/base/text.h>
#include <coracle/operators/elementwise/fused_group.h>

#include <algorithm>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;

bool IsTaken(const FusedGroup& group, const OpDesc& op, TakesOp takes) {
  const OpSpec* spec = group.ops->Find(op.type());
  return spec && !spec->random && !spec->side_effect && !op.HasSubBlock() && takes(*spec);
}

// Requires that ops read only arguments and results of earlier ops, and that no two ops write the
// same variable.
void RequireOrder(InferContext& ctx, const FusedGroup& group, TakesOp takes) {
  std::unordered_set<std::string_view> known(group.arguments.begin(), group.arguments.end());
  for (size_t i = 0; i < group.block->NumOps(); ++i) {
    const OpDesc& op = group.block->op(i);
    ctx.Require("C5", IsTaken(group, op, takes), op.type());
    op.ForEachInput([&](const std::string& name) {
      ctx.Require("C6", known.count(name) > 0, "reads", Quote(name));
    });
    op.ForEachOutput([&](const std::string& name) {
      const bool is_new = known.insert(name).second && group.block->FindVar(name);
      ctx.Require("C6", is_new, "writes", Quote(name));
    });
  }
  for (const std::string& name : group.results)
    ctx.Require("C6", known.count(name) > 0, "result", Quote(name));
}

void RequireNames(InferContext& ctx, const FusedGroup& group) {
  for (const Names* names : {&group.arguments, &group.results}) {
    std::unordered_set<std::string_view> seen;
    for (const std::string& name : *names) {
      ctx.Require("C3", group.block->FindVar(name) != nullptr, Quote(name));
      ctx.Require("C4", seen.insert(name).second, Quote(name));
    }
  }
  for (const std::string& name : group.results) {
    const bool passes_on =
        std::find(group.arguments.begin(), group.arguments.end(), name) != group.arguments.end();
    ctx.Require("C4", !passes_on, Quote(name));
  }
}

}  // namespace

void InferGroup(InferContext& ctx, const OpRegistry& ops, TakesOp takes) {
  const FusedGroup group = FusedGroupOf(ctx.op(), ctx.spec(), ops);
  const Names &arguments = group.arguments, &results = group.results;
  ctx.Require("C1", arguments.size() == ctx.NumInputs("X"), arguments.size(), ctx.NumInputs("X"));
  ctx.Require("C2", results.size() == ctx.NumOutputs("Out"), results.size(), ctx.NumOutputs("Out"));
  for (int32_t from : ctx.Attr<std::vector<int32_t>>("lod_from"))
    ctx.Require("C8", from >= -1 && from < static_cast<int64_t>(arguments.size()), from);
  if (!group.block) return;
  RequireNames(ctx, group);
  RequireOrder(ctx, group, takes);
  const auto constant = [&](const std::string& name) -> const Tensor* {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i] == name) return ctx.Constant("X", i);
    }
    return nullptr;
  };
  GroupTypes types(ctx.exact(), constant);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const VarMeta& given = ctx.Input("X", i);
    ctx.Require("C7", given.type == VarType::kLoDTensor, given);
    types.Set(arguments[i], given);
  }
  group.Infer(types);
  for (size_t i = 0; i < results.size(); ++i) {
    const VarMeta* meta = types.Find(results[i]);
    ctx.Require("C7", meta && meta->type == VarType::kLoDTensor, Quote(results[i]));
    ctx.SetOutput("Out", *meta, i);
  }
}

void DeclareGroup(OpDef& def, const std::string& which) {
  def.Constraint("C1", "there must be one argument for each X")
      .Constraint("C2", "there must be as many results as Out")
      .Constraint("C3", "arguments and results must be variables of the block")
      .Constraint("C4", "no argument or result may be named twice")
      .Constraint("C5", "the ops of the block must " + which + ", and draw no random numbers")
      .Constraint("C6",
                  "each op may read only arguments and results of earlier ops, and no two ops may "
                  "write the same variable")
      .Constraint("C7", "X and Out must be dense tensors")
      .Constraint("C8", "lod_from must hold indices of X, or -1")
      .VariadicInput("X", "the arguments")
      .VariadicOutput("Out", "the results")
      .TakesAnyValue()
      .Attr<BlockRef>("sub_block", "the ops")
      .Attr<Names>("arguments", "variables of the block that X fills")
      .Attr<Names>("results", "variables of the block that fill Out")
      .Attr<std::vector<int32_t>>("lod_from", {},
                                  "for each Out, the index of the X whose LoD it gets; -1: none")
      .RunsBlock({.runs = BlockRuns::kOnce,
                  .arguments = {{"X", "arguments"}},
                  .results = {{"Out", "results"}}})
      .NoGradient("it is made when a program is compiled, after its gradients");
}

}  // namespace coracle::inline internal
