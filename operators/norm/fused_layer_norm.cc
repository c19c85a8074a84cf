// A sum and its layer_norm, as used in inference programs.

#include <coracle/framework/op/expansion.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle::fused_layer_norm_op {

// Checks C1 (the axis) and C2 (scale and bias).
int64_t CheckNorm(const InferContext& ctx, const Shape& out, int axis, const char* scale,
                  const char* bias, DType dtype) {
  ctx.Require("C1", axis > 0 && axis < out.rank(), "begin_norm_axis", axis, "rank", out.rank());
  const int64_t columns = ProductOfDims(out, axis, out.rank());
  for (const char* slot : {scale, bias}) {
    if (!ctx.HasInput(slot)) continue;
    const VarMeta& got = ctx.Input(slot);
    ctx.Require("C2", got.dtype == dtype && got.shape.CompatibleWith(Shape{columns}), slot, got,
                "elements of a row", columns);
  }
  return ProductOfDims(out, 0, axis);
}

// --- skip_layernorm ---

void InferSkip(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &y = ctx.Input("Y");
  ctx.Require("C3", x.dtype == y.dtype && x.shape.CompatibleWith(y.shape), "X", x, "Y", y);
  CheckNorm(ctx, x.shape, ctx.Attr<int32_t>("begin_norm_axis"), "Scale", "Bias", x.dtype);
  ctx.SetOutput("Out", x);
}

// Out = layer_norm(x) with the op's scale and bias.
void NormInto(ExpandContext& ctx, const Variable& x, const char* bias, int32_t begin_axis) {
  SlotList inputs = ctx.Inputs({"Scale"});
  inputs.push_back({"X", {x.name()}});
  if (ctx.HasInput(bias)) inputs.push_back({"Bias", {ctx.In(bias).name()}});
  ctx.Append(
      "layer_norm", std::move(inputs),
      {{"Y", {ctx.Out("Out")}}, {"Mean", {ctx.Out("Mean")}}, {"Variance", {ctx.Out("Variance")}}},
      {{"epsilon", ctx.Attr<float>("epsilon")}, {"begin_norm_axis", begin_axis}});
}

void ExpandSkip(ExpandContext& ctx) {
  NormInto(ctx, ctx.In("X") + ctx.In("Y"), "Bias", ctx.Attr<int32_t>("begin_norm_axis"));
}

// --- fused_embedding_eltwise_layernorm ---

void InferEmbedding(InferContext& ctx) {
  const VarMeta& first = ctx.Input("Ids");
  VarMeta table = ctx.Input("Embs");
  ctx.Require("C3", ctx.NumInputs("Ids") == ctx.NumInputs("Embs"), "Ids", ctx.NumInputs("Ids"),
              "Embs", ctx.NumInputs("Embs"));
  for (size_t i = 0; i < ctx.NumInputs("Ids"); ++i) {
    const VarMeta &ids = ctx.Input("Ids", i), &emb = ctx.Input("Embs", i);
    const int rank = ids.shape.rank();
    ctx.Require("C4",
                IsIndexType(ids.dtype) && (rank == 2 || rank == 3) &&
                    (rank == 2 || InferContext::Matches(ids.shape[2], 1)) &&
                    InferContext::Matches(ids.shape[0], first.shape[0]) &&
                    InferContext::Matches(ids.shape[1], first.shape[1]),
                "Ids", ids);
    ctx.Require("C5",
                emb.dtype == table.dtype && emb.shape.rank() == 2 &&
                    InferContext::Matches(emb.shape[1], table.shape[1]),
                "Embs", emb);
  }
  table.shape = {first.shape[0], first.shape[1], table.shape[1]};
  CheckNorm(ctx, table.shape, 2, "Scale", "Bias", table.dtype);
  ctx.SetOutput("Out", table);
}

void ExpandEmbedding(ExpandContext& ctx) {
  Variable sum;
  for (size_t i = 0; i < ctx.NumInputs("Ids"); ++i) {
    const bool column = ctx.InShape("Ids", i).rank() == 3;
    const Variable rows =
        ctx.Make(column ? "lookup_table" : "lookup_table_v2",
                 {{"W", {ctx.In("Embs", i).name()}}, {"Ids", {ctx.In("Ids", i).name()}}});
    sum = i == 0 ? rows : sum + rows;
  }
  NormInto(ctx, sum, "Bias", 2);
}

// --- fused_fc_elementwise_layernorm ---

void InferFc(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &w = ctx.Input("W"), &y = ctx.Input("Y");
  const int split = ctx.Attr<int32_t>("x_num_col_dims");
  ctx.Require("C3", split > 0 && split < x.shape.rank(), "x_num_col_dims", split, "X", x);
  ctx.Require("C4",
              w.dtype == x.dtype && w.shape.rank() == 2 &&
                  InferContext::Matches(w.shape[0], ProductOfDims(x.shape, split, x.shape.rank())),
              "W", w, "X", x);
  if (ctx.HasInput("Bias0")) {
    const VarMeta& bias = ctx.Input("Bias0");
    ctx.Require("C4", bias.dtype == x.dtype && bias.shape.CompatibleWith(Shape{w.shape[1]}),
                "Bias0", bias);
  }
  std::vector<int64_t> dims = x.shape.ToVector();
  dims.resize(static_cast<size_t>(split));
  dims.push_back(w.shape[1]);
  VarMeta out = x;
  out.shape = ToShape(ctx, "C4", dims);
  ctx.Require("C5", y.dtype == x.dtype && y.shape.CompatibleWith(out.shape), "Y", y, "wanted",
              out.shape);
  const int64_t rows =
      CheckNorm(ctx, out.shape, ctx.Attr<int32_t>("begin_norm_axis"), "Scale", "Bias1", x.dtype);
  ctx.SetOutput("Out", out);
  ctx.SetOutput("Mean", x.dtype, {rows});
  ctx.SetOutput("Variance", x.dtype, {rows});
}

void ExpandFc(ExpandContext& ctx) {
  SlotList inputs = {{"Input", {ctx.In("X").name()}}, {"W", {ctx.In("W").name()}}};
  if (ctx.HasInput("Bias0")) inputs.push_back({"Bias", {ctx.In("Bias0").name()}});
  const Variable activated =
      ctx.Make("fc", std::move(inputs),
               {{"in_num_col_dims", ctx.Attr<int32_t>("x_num_col_dims")},
                {"activation_type", ctx.Attr<std::string>("activation_type")}});
  NormInto(ctx, activated + ctx.In("Y"), "Bias1", ctx.Attr<int32_t>("begin_norm_axis"));
}

// --- registration ---

constexpr const char* kAxis = "begin_norm_axis must lie in (0, rank of Out)";

void DeclareNorm(OpDef& def, const char* bias) {
  def.Constraint("C2",
                 "scale and bias must be vectors with an element for each element of a row, of the "
                 "input's dtype")
      .OptionalInput("Scale", "vector, an element for each element of a row; 1 if absent")
      .OptionalInput(bias,
                     "vector, an element for each element of a row, added at the end; 0 if absent");
}

void AddSkip(OpRegistry& ops) {
  OpDef def("skip_layernorm");
  def.Doc("Out = layer_norm(X + Y) over the dimensions from begin_norm_axis on.")
      .Input("X", "floating-point tensor of rank 2 or more")
      .Input("Y", "tensor like X")
      .Constraint("C1", kAxis)
      .Apply(DeclareNorm, "Bias")
      .Constraint("C3", "X and Y must have one shape and dtype")
      .Output("Out", "tensor like X")
      .Attr<float>("epsilon", "added to the variance")
      .Range(0, std::nullopt)
      .Attr<int32_t>("begin_norm_axis", "first dim of a row")
      .Rows(RowRule::kEach)
      .WorksAlong("begin_norm_axis", AxesAttr::kFrom)
      .Tables({"Bias"})
      .Infer(InferSkip)
      .Expands({"elementwise_add", "layer_norm"}, ExpandSkip);
  ops.Add(std::move(def));
}

void AddEmbedding(OpRegistry& ops) {
  OpDef def("fused_embedding_eltwise_layernorm");
  def.Doc(
         "Out = layer_norm of the sum of the rows Embs_k[Ids_k] over the last dimension. An id "
         "outside of the rows is an error.")
      .VariadicInput("Ids", "int32 or int64 tensors [B, S] or [B, S, 1]")
      .VariadicInput("Embs", "floating-point tensors [V, H], one for each of Ids")
      .Apply(DeclareNorm, "Bias")
      .Constraint("C3", "there must be one Embs for each Ids")
      .Constraint("C4", "Ids must be int32 or int64 [B, S] or [B, S, 1], all of one B and S")
      .Constraint("C5", "Embs must be matrices of one dtype and number of columns")
      .Output("Out", "tensor [B, S, H]")
      .Attr<float>("epsilon", 1e-5f, "added to the variance")
      .Range(0, std::nullopt)
      .Rows(RowRule::kEach)
      .Tables({"Embs", "Bias"})
      .Infer(InferEmbedding)
      .KernelTypeFrom("Embs")
      .Expands({"lookup_table", "lookup_table_v2", "elementwise_add", "layer_norm"},
               ExpandEmbedding);
  ops.Add(std::move(def));
}

void AddFc(OpRegistry& ops) {
  OpDef def("fused_fc_elementwise_layernorm");
  def.Doc(
         "Out = layer_norm(act(X W + Bias0) + Y) over the dimensions from begin_norm_axis on, "
         "times Scale plus Bias1. X is taken as a matrix whose columns are the dimensions from "
         "x_num_col_dims on.")
      .Input("X", "floating-point tensor of rank 2 or more")
      .Input("W", "tensor [columns of X, N]")
      .OptionalInput("Bias0", "vector [N]; 0 when absent")
      .Input("Y", "tensor of Out's shape")
      .Constraint("C1", kAxis)
      .Apply(DeclareNorm, "Bias1")
      .Constraint("C3", "x_num_col_dims must lie in (0, rank of X)")
      .Constraint("C4", "W must be [columns of X, N] and Bias0 [N], of X's dtype")
      .Constraint("C5", "Y must have Out's shape and X's dtype")
      .Output("Out", "tensor of X's first x_num_col_dims dimensions and N")
      .OptionalOutput("Mean", "mean of each row")
      .OptionalOutput("Variance", "biased variance of each row")
      .Attr<int32_t>("x_num_col_dims", 1, "number of leading dims of X that become its rows")
      .Attr<std::string>("activation_type", "", "act: relu or none")
      .OneOf({"", "relu"})
      .Attr<float>("epsilon", 1e-5f, "added to the variance")
      .Range(0, std::nullopt)
      .Attr<int32_t>("begin_norm_axis", 1, "first dim of Out that belongs to a row")
      .Rows(RowRule::kEach)
      .WorksAlong("begin_norm_axis", AxesAttr::kFrom)
      .Tables({"W"})
      .Infer(InferFc)
      .Expands({"fc", "elementwise_add", "layer_norm"}, ExpandFc);
  ops.Add(std::move(def));
}

void Register(OpRegistry& ops) {
  AddSkip(ops);
  AddEmbedding(ops);
  AddFc(ops);
}

}  // namespace coracle::fused_layer_norm_op
