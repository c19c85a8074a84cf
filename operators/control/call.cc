#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <fmt/format.h>

#include <unordered_set>

namespace coracle::call_op {

using Names = std::vector<std::string>;

// The block that an op runs; nullptr if the op is not in a program.
const BlockDesc* BlockOf(const OpDesc& op, const char* attr) {
  const Attribute* value = op.FindAttr(attr);
  const auto* ref = value ? std::get_if<BlockRef>(value) : nullptr;
  if (!ref || !op.block() || ref->idx <= 0 || ref->idx >= op.block()->program().NumBlocks())
    return nullptr;
  return &op.block()->program().Block(ref->idx);
}

// A name that occurs twice in the list.
const std::string* FindTwice(const Names& names) {
  std::unordered_set<std::string_view> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) return &name;
  }
  return nullptr;
}

void RequireDeclared(InferContext& ctx, const BlockDesc& block, const Names& names) {
  for (const std::string& name : names) {
    if (!block.FindVar(name)) ctx.Fail("C3", Quote(name));
  }
}

void InferCall(InferContext& ctx) {
  const Names parameters = ctx.Attr<Names>("parameters"), results = ctx.Attr<Names>("results");
  ctx.Require("C1", parameters.size() == ctx.NumInputs("X"), parameters.size(), ctx.NumInputs("X"));
  ctx.Require("C2", results.size() == ctx.NumOutputs("Out"), results.size(), ctx.NumOutputs("Out"));
  for (const Names& names : {parameters, results}) {
    if (const std::string* twice = FindTwice(names)) ctx.Fail("C4", Quote(*twice));
  }
  const std::string function = ctx.Attr<std::string>("gradient_function");
  if (ctx.op().HasAttr("gradient_block") && !function.empty())
    ctx.Fail("C5", "gradient_function", Quote(function));
  const BlockDesc* block = BlockOf(ctx.op(), "sub_block");
  if (!block) return;
  RequireDeclared(ctx, *block, parameters);
  RequireDeclared(ctx, *block, results);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const VarMeta& given = ctx.Input("X", i);
    const VarMeta& wanted = block->FindVar(parameters[i])->meta();
    if (given.dtype != wanted.dtype || !given.shape.CompatibleWith(wanted.shape))
      ctx.Fail("C6", given.ToString() + " for " + wanted.ToString());
  }
  for (size_t i = 0; i < results.size(); ++i)
    ctx.SetOutput("Out", block->FindVar(results[i])->meta(), i);
}

// The gradient given by another block, which is called with X and the gradients of Out.
void CustomGradient(GradientContext& g) {
  Names inputs = g.Inputs("X");
  for (std::string& grad : g.OutputGrads("Out")) inputs.push_back(std::move(grad));
  g.Append("call", {{"X", std::move(inputs)}}, {{"Out", g.InputGrads("X")}},
           {{"sub_block", g.Attr<BlockRef>("gradient_block")},
            {"parameters", g.Attr<Names>("gradient_parameters")},
            {"results", g.Attr<Names>("gradient_results")}});
}

void CallGradient(GradientContext& g) {
  if (g.op().HasAttr("gradient_block")) return CustomGradient(g);
  const Names parameters = g.Attr<Names>("parameters"), results = g.Attr<Names>("results");
  GradientBlockRequest request;
  request.forward_block = g.Attr<BlockRef>("sub_block").idx;
  for (size_t i = 0; i < results.size(); ++i) {
    if (g.HasOutputGrad("Out", i)) request.outputs.push_back(results[i]);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (g.NeedsInputGrad("X", i)) request.inputs.push_back(parameters[i]);
  }
  const GradientBlock block = g.AppendGradientBlock(request);
  if (block.idx < 0) return;
  Names out_grads, arriving, x_grads, leaving;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string name = GradientBlock::Find(block.arriving, results[i]);
    if (name.empty()) continue;
    arriving.push_back(name);
    out_grads.push_back(g.OutputGrad("Out", i));
  }
  // One for each X; empty if no result depends on it.
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::string name = GradientBlock::Find(block.leaving, parameters[i]);
    x_grads.push_back(name.empty() ? std::string(kEmptyVarName) : g.InputGrad("X", i));
    leaving.push_back(std::move(name));
  }
  const std::string scope = g.ForwardOutput("Scope", {VarType::kStepScopes, {}, {}});
  g.Append("call_grad", {{"Scope", {scope}}, {"Out@GRAD", std::move(out_grads)}},
           {{"X@GRAD", std::move(x_grads)}},
           {{"sub_block", BlockRef{block.idx}},
            {"parameters", std::move(arriving)},
            {"results", std::move(leaving)}});
}

void InferCallGrad(InferContext& ctx) {
  const Names results = ctx.Attr<Names>("results");
  const BlockDesc* block = BlockOf(ctx.op(), "sub_block");
  for (size_t i = 0; block && i < results.size() && i < ctx.NumOutputs("X@GRAD"); ++i) {
    const VarDesc* var = block->FindVar(results[i]);
    if (var) ctx.SetOutput("X@GRAD", var->meta(), i);
  }
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("call")
          .Doc("Runs a block as a function: the variables `parameters` of the block get the values "
               "of X, and Out gets the values of its variables `results`. Several calls may share "
               "a block. Before a program runs, each call is replaced by the ops of its block. The "
               "gradient is derived from the block unless it is defined explicitly: by "
               "gradient_block, which takes X and the gradients of Out and returns the gradients "
               "of X, or by a function of BackwardOptions::functions.")
          .Constraint("C1", "there must be one parameter for each X")
          .Constraint("C2", "there must be one result for each Out")
          .Constraint("C3", "parameters and results must be variables of the block")
          .Constraint("C4", "no parameter or result may be named twice")
          .Constraint(
              "C5",
              "the gradient must not be defined twice: by gradient_block and by gradient_function")
          .Constraint("C6", "each X must have the type of its parameter")
          .OptionalVariadicInput("X", "the arguments")
          .VariadicOutput("Out", "the results")
          .OptionalOutput("Scope", "identifies the values of this call for its gradient")
          .Attr<BlockRef>("sub_block", "the function")
          .Attr<Names>("parameters", {}, "variables of the block that X fills")
          .Attr<Names>("results", "variables of the block that fill Out")
          .Attr<BlockRef>("gradient_block", BlockRef{}, "computes the gradient")
          .Attr<Names>("gradient_parameters", {}, "its variables for X and the gradients of Out")
          .Attr<Names>("gradient_results", {}, "its variables with the gradients of X")
          .Attr<std::string>("gradient_function", "", "name in BackwardOptions::functions")
          .RunsBlock({.runs = BlockRuns::kFunction,
                      .arguments = {{"X", "parameters"}},
                      .results = {{"Out", "results"}},
                      .replaced = true})
          .Infer(InferCall)
          .Gradient(CallGradient));
  ops.Add(
      OpDef("call_grad")
          .Doc("Gradient of call: runs the gradient block of its function on the values of "
               "that call.")
          .Input("Scope", "the value in the forward op")
          .OptionalVariadicInput("Out@GRAD", "gradients of results")
          .Takes(VarType::kLoDTensorArray, {"Out@GRAD"})
          .OptionalVariadicOutput("X@GRAD", "gradients of arguments")
          .Attr<BlockRef>("sub_block", "the gradient block")
          .Attr<Names>("parameters", "its variables that Out@GRAD fills")
          .Attr<Names>("results", "its variables that fill X@GRAD; \"\" if there is no gradient")
          .RunsBlock({.runs = BlockRuns::kGradient,
                      .arguments = {{"Out@GRAD", "parameters"}},
                      .replaced = true})
          .Infer(InferCallGrad)
          .NoGradient(
              "for second derivatives, first replace the calls by their ops with InlineCalls"));
}

}  // namespace coracle::call_op
