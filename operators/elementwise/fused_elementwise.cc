#include <coracle/framework/base/text.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/elementwise/fused_group.h>
#include <fmt/format.h>

#include <unordered_set>

namespace coracle {
namespace {

using Names = std::vector<std::string>;

// Whether an op can be in a group.
bool IsElementwise(const OpRegistry& ops, const OpDesc& op) {
  const OpSpec* spec = ops.Find(op.type());
  return spec && spec->elementwise && !spec->random && !spec->side_effect && !op.HasSubBlock();
}

// What the ops read is an argument or was written by one of them before; each writes variables of
// its own.
void RequireOrder(InferContext& ctx, const FusedGroup& group) {
  std::unordered_set<std::string_view> known(group.arguments.begin(), group.arguments.end());
  for (size_t i = 0; i < group.block->NumOps(); ++i) {
    const OpDesc& op = group.block->op(i);
    ctx.Require("C5", IsElementwise(*group.ops, op), op.type());
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

void InferFused(InferContext& ctx, const OpRegistry& ops) {
  const FusedGroup group = FusedGroupOf(ctx.op(), ctx.spec(), ops);
  const Names &arguments = group.arguments, &results = group.results;
  ctx.Require("C1", arguments.size() == ctx.NumInputs("X"), arguments.size(), ctx.NumInputs("X"));
  ctx.Require("C2", results.size() == ctx.NumOutputs("Out"), results.size(), ctx.NumOutputs("Out"));
  for (int32_t from : ctx.Attr<std::vector<int32_t>>("lod_from"))
    ctx.Require("C8", from >= -1 && from < static_cast<int64_t>(arguments.size()), from);
  if (!group.block) return;
  RequireNames(ctx, group);
  RequireOrder(ctx, group);
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

}  // namespace

void RegisterFusedElementwise(OpRegistry& ops) {
  // A registry's declarations live as long as it does.
  const OpRegistry* all = &ops;
  ops.Add(
      OpDef("fused_elementwise")
          .Doc(
              "Runs the elementwise ops of a block in one sweep: its variables `arguments` get the "
              "values of X, and Out those of its variables `results`. The tensors are cut into "
              "pieces that fit into the cache; all ops run on one piece before the next, so that X "
              "is read and Out is written once, and what the ops pass to each other never leaves "
              "the cache. Operands that are stretched are cut along the dims that they have. A "
              "group that cannot be cut runs op by op. The pass fuse_elementwise makes these ops.")
          .Constraint("C1", "there must be as many arguments as X")
          .Constraint("C2", "there must be as many results as Out")
          .Constraint("C3", "arguments and results must be variables of the block")
          .Constraint("C4", "no argument or result may be named twice")
          .Constraint("C5", "the ops of the block must be elementwise, and draw no random numbers")
          .Constraint("C6",
                      "the ops must read only arguments and what ops before them wrote, and each "
                      "must write variables of its own")
          .Constraint("C7", "X and Out must be dense tensors")
          .Constraint("C8", "lod_from must name places in X, or -1")
          .VariadicInput("X", "the arguments")
          .VariadicOutput("Out", "the results")
          .TakesAnyValue()
          .Attr<BlockRef>("sub_block", "the ops")
          .Attr<Names>("arguments", "variables of the block that X fills")
          .Attr<Names>("results", "variables of the block that fill Out")
          .Attr<std::vector<int32_t>>("lod_from", {},
                                      "for each Out the place in X whose LoD it has; -1: none")
          .RunsBlock({.runs = BlockRuns::kOnce,
                      .arguments = {{"X", "arguments"}},
                      .results = {{"Out", "results"}}})
          .Inplace("X", "Out")
          .Infer([all](InferContext& ctx) { InferFused(ctx, *all); })
          .NoGradient("it is made when a program is compiled, after its gradients")
          .Reference([all](const PrepareContext& ctx) {
            return PrepareFused(ctx, *all, KernelMode::kReference);
          })
          .Fast([all](const PrepareContext& ctx) {
            return PrepareFused(ctx, *all, KernelMode::kAuto);
          }));
}

}  // namespace coracle
