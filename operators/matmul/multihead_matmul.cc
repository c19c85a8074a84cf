// multihead_matmul: the attention of a transformer, with its projections.

#include <coracle/framework/op/expansion.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/rows.h>

#include <vector>

namespace coracle::multihead_matmul_op {

void InferAttention(InferContext& ctx) {
  VarMeta x = ctx.Input("Input");
  const VarMeta &w = ctx.Input("W"), &bias = ctx.Input("Bias"), &mask = ctx.Input("BiasQK");
  ctx.Require("C1", x.shape.rank() == 3, "Input", x);
  const bool usual = !ctx.Attr<bool>("transpose_Q") && ctx.Attr<bool>("transpose_K") &&
                     !ctx.Attr<bool>("transpose_V");
  ctx.Require("C2", usual, "transpose_Q", ctx.Attr<bool>("transpose_Q"), "transpose_K",
              ctx.Attr<bool>("transpose_K"), "transpose_V", ctx.Attr<bool>("transpose_V"));
  ctx.Require("C3",
              w.dtype == x.dtype && w.shape.rank() == 3 && InferContext::Matches(w.shape[1], 3) &&
                  InferContext::Matches(w.shape[0], x.shape[2]),
              "W", w, "Input", x);
  const int64_t heads = ctx.Attr<int32_t>("head_number"), hidden = w.shape[2];
  ctx.Require("C4", hidden < 0 || hidden % heads == 0, "head_number", heads, "H", hidden);
  ctx.Require("C5", bias.dtype == x.dtype && bias.shape.CompatibleWith(Shape{3, hidden}), "Bias",
              bias);
  ctx.Require("C6",
              mask.dtype == x.dtype &&
                  mask.shape.CompatibleWith(Shape{x.shape[0], heads, x.shape[1], x.shape[1]}),
              "BiasQK", mask);
  x.shape[2] = hidden;
  ctx.SetOutput("Out", x);
}

// One product makes q, k and v of all heads, [B, S, 3, head_number, H / head_number].
void ExpandAttention(ExpandContext& ctx) {
  using Ints = std::vector<int32_t>;
  const auto reshape = [&](const Variable& x, const Ints& shape) {
    return ctx.Make("reshape2", {{"X", {x.name()}}}, {{"shape", shape}});
  };
  const Variable w = reshape(ctx.In("W"), {0, -1}), bias = reshape(ctx.In("Bias"), {-1});
  const Variable columns = ctx.Make(
      "fc", {{"Input", {ctx.In("Input").name()}}, {"W", {w.name()}}, {"Bias", {bias.name()}}},
      {{"in_num_col_dims", int32_t{2}}});
  const Variable joined = reshape(columns, {0, 0, 3, ctx.Attr<int32_t>("head_number"), -1});
  const std::string heads = ctx.Out("Heads");
  ctx.Append("scaled_dot_product_attention",
             {{"Q", {joined.name()}}, {"Mask", {ctx.In("BiasQK").name()}}},
             {{"Out", {heads}}, {"SoftmaxStats", {ctx.Out("SoftmaxStats")}}},
             {{"layout", std::string("BS3HD")}, {"scale", ctx.Attr<float>("alpha")}});
  ctx.Into("Out", "reshape2", {{"X", {heads}}}, {{"shape", Ints{0, 0, -1}}});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("multihead_matmul")
              .Doc("Attention of several heads: q, k, v = Input W + Bias, cut into heads of H / "
                   "head_number columns; Out = softmax(alpha q k^T + BiasQK) v, the heads side by "
                   "side.")
              .Constraint("C1", "Input must be [B, S, columns]")
              .Constraint("C2", "transpose_K must be true, transpose_Q and transpose_V false")
              .Constraint("C3", "W must be [columns of Input, 3, H], of Input's dtype")
              .Constraint("C4", "head_number must divide H")
              .Constraint("C5", "Bias must be [3, H], of Input's dtype")
              .Constraint("C6", "BiasQK must be [B, head_number, S, S], of Input's dtype")
              .Input("Input", "floating-point tensor [B, S, columns]")
              .Input("W", "tensor [columns, 3, H]: the weights of q, k and v")
              .Input("Bias", "tensor [3, H]")
              .Input("BiasQK", "tensor [B, head_number, S, S], added to the scores")
              .Output("Out", "tensor [B, S, H]")
              .Attr<int32_t>("head_number", 1, "heads")
              .Range(1, std::nullopt)
              .Attr<float>("alpha", 1.f, "factor of the scores")
              .Attr<bool>("transpose_Q", false, "false")
              .Attr<bool>("transpose_K", true, "true")
              .Attr<bool>("transpose_V", false, "false")
              .Rows(EachBatchRow, kEachBatchRow)
              .Tables({"W", "Bias"})
              .Infer(InferAttention)
              .Expands({"reshape2", "fc", "scaled_dot_product_attention"}, ExpandAttention));
}

}  // namespace coracle::multihead_matmul_op
