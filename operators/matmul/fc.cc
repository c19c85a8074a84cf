// Layers of matrix products: fc and fusion_repeated_fc_relu.

#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle {
namespace {

constexpr int64_t kPadding = 4;  // rows and columns that padding_weights puts after W

// [M] or [1, M].
bool IsBias(const Shape& shape, int64_t columns) {
  const int rank = shape.rank();
  return (rank == 1 || (rank == 2 && InferContext::Matches(shape[0], 1))) &&
         InferContext::Matches(shape[rank - 1], columns);
}

void InferFc(InferContext& ctx) {
  const VarMeta& in = ctx.Input("Input");
  const Shape& w = ctx.InputShape("W");
  const int rank = in.shape.rank(), rows = ctx.Attr<int32_t>("in_num_col_dims");
  ctx.Require("C1", rows > 0 && rows < rank, "in_num_col_dims", rows, "Input", in.shape);
  const int64_t padding = ctx.Attr<bool>("padding_weights") ? kPadding : 0;
  const int64_t width = ProductOfDims(in.shape, rows, rank);
  const bool matrix = w.rank() == 2 && (w[1] < 0 || w[1] >= padding);
  ctx.Require("C2", matrix && InferContext::Matches(w[0], AddDims(width, padding)), "W", w, "width",
              width);
  const int64_t columns = w[1] < 0 ? -1 : w[1] - padding;
  RequireSameDType(ctx, "C4", "W", "Input");
  if (ctx.HasInput("Bias")) {
    ctx.Require("C3", IsBias(ctx.InputShape("Bias"), columns), "Bias", ctx.InputShape("Bias"),
                "columns", columns);
    RequireSameDType(ctx, "C4", "Bias", "Input");
  }
  Shape out;
  for (int i = 0; i < rows; ++i) out.Append(in.shape[i]);
  out.Append(columns);
  ctx.SetOutput("Out", in.dtype, out);
}

// Adds a bias (if there is one) to every row, and takes the positive part.
template <class T>
void Finish(T* rows, int64_t count, int64_t columns, const T* bias, bool relu) {
  for (int64_t r = 0; r < count; ++r) {
    T* row = rows + r * columns;
    for (int64_t j = 0; j < columns; ++j) {
      const T value = bias ? row[j] + bias[j] : row[j];
      row[j] = relu && value < 0 ? T(0) : value;
    }
  }
}

template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Fc(const PrepareContext& ctx) {
  const TensorArg in = ctx.Input("Input"), w = ctx.Input("W"), bias = ctx.Input("Bias");
  const TensorArg out = ctx.Output("Out");
  const int split = ctx.Attr<int32_t>("in_num_col_dims");
  const int64_t m = in.shape.Product(0, split), k = in.shape.Product(split, in.shape.rank());
  const int64_t n = out.shape[split];
  const bool relu = ctx.Attr<std::string>("activation_type") == "relu";
  const auto gemm = MakeGemm<T>({.m = m, .n = n, .k = k}, mode);
  if (!gemm) return {};
  const bool padded = ctx.Attr<bool>("padding_weights");
  const TensorArg packed = padded ? ctx.Scratch(w.dtype, {k, n}) : w;
  return [=](Workspace& ws) {
    for (int64_t i = 0; padded && i < k; ++i) {
      const T* row = ws.Data<const T>(w) + i * (n + kPadding);
      std::copy_n(row, n, ws.Data<T>(packed) + i * n);
    }
    T* o = ws.Data<T>(out);
    gemm(ws.Data<const T>(in), ws.Data<const T>(packed), o);
    if (bias || relu) Finish<T>(o, m, n, bias ? ws.Data<const T>(bias) : nullptr, relu);
  };
}

Kernel FcFast(const PrepareContext& ctx) {
  if (ctx.Input("Input").dtype != DType::kFloat32) return {};
  return Fc<float, KernelMode::kAuto>(ctx);
}

// With dZ = dOut, 0 where relu cut Out off: dInput = dZ W^T, dW = Input^T dZ, dBias = sum of dZ.
void FcGradient(GradientContext& g) {
  const int32_t rows = g.Attr<int32_t>("in_num_col_dims");
  Variable dz = g.Grad("Out");
  if (g.Attr<std::string>("activation_type") == "relu") {
    const Variable kept = Cast(Greater(g.Out("Out"), 0.0), dz.dtype());
    dz = dz * kept;
  }
  std::string w = g.Input("W");
  const bool padded = g.Attr<bool>("padding_weights");
  constexpr auto kEnd = static_cast<int32_t>(kPadding);
  if (padded) {
    const std::vector<int32_t> ends = {-kEnd, -kEnd};  // counted from the end of W
    w = g.Make("slice", {{"Input", {w}}},
               {{"axes", std::vector<int32_t>{0, 1}},
                {"starts", std::vector<int32_t>{0, 0}},
                {"ends", ends}})
            .name();
  }
  const auto grad = [&](const char* slot) {
    return g.Make("mul_grad", {{"X", {g.Input("Input")}}, {"Y", {w}}, {"Out@GRAD", {dz.name()}}},
                  {{"x_num_col_dims", rows}}, slot);
  };
  g.Set("Input", grad("X@GRAD"));
  const Variable dw = grad("Y@GRAD");
  g.Set("W", padded ? g.Make("pad", {{"X", {dw.name()}}},
                             {{"paddings", std::vector<int32_t>{0, kEnd, 0, kEnd}}})
                    : dw);
  if (!g.NeedsInputGrad("Bias")) return;
  std::vector<int32_t> dims;
  for (int32_t i = 0; i < rows; ++i) dims.push_back(i);
  const Variable dbias = Sum(dz, dims);
  g.Set("Bias", g.In("Bias").shape().rank() == 1 ? dbias : Reshape(dbias, {1, -1}));
}

// --- fusion_repeated_fc_relu ---

void InferRepeated(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 2, x.shape);
  const size_t layers = ctx.NumInputs("W");
  ctx.Require("C2",
              layers >= 2 && ctx.NumInputs("Bias") == layers &&
                  (!ctx.HasOutput("ReluOut") || ctx.NumOutputs("ReluOut") == layers - 1),
              "W", layers, "Bias", ctx.NumInputs("Bias"), "ReluOut", ctx.NumOutputs("ReluOut"));
  for (size_t i = 0; i < layers; ++i) {
    const VarMeta &w = ctx.Input("W", i), &bias = ctx.Input("Bias", i);
    const bool fits = w.shape.rank() == 2 && InferContext::Matches(w.shape[0], x.shape[1]);
    ctx.Require("C3", fits && IsBias(bias.shape, w.shape[1]), "W", w, "Bias", bias, "X", x);
    ctx.Require("C4", w.dtype == x.dtype && bias.dtype == x.dtype, "W", w, "Bias", bias, "X", x);
    x.shape[1] = w.shape[1];
    if (i + 1 < layers)
      ctx.SetOutput("ReluOut", x, i);
    else
      ctx.SetOutput("Out", x);
  }
}

template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Repeated(const PrepareContext& ctx) {
  struct Layer {
    TensorArg in, w, bias, out;
    Gemm<T> gemm;
  };
  std::vector<Layer> layers;
  TensorArg x = ctx.Input("X");
  const size_t count = ctx.NumInputs("W");
  for (size_t i = 0; i < count; ++i) {
    const TensorArg w = ctx.Input("W", i);
    const int64_t rows = x.shape[0], columns = w.shape[1];
    TensorArg out = i + 1 < count ? ctx.Output("ReluOut", i) : ctx.Output("Out");
    if (!out) out = ctx.Scratch(x.dtype, {rows, columns});
    layers.push_back({x, w, ctx.Input("Bias", i), out,
                      MakeGemm<T>({.m = rows, .n = columns, .k = w.shape[0]}, mode)});
    if (!layers.back().gemm) return {};
    x = out;
  }
  return [=](Workspace& ws) {
    for (const Layer& layer : layers) {
      T* out = ws.Data<T>(layer.out);
      layer.gemm(ws.Data<const T>(layer.in), ws.Data<const T>(layer.w), out);
      Finish(out, layer.out.shape[0], layer.out.shape[1], ws.Data<const T>(layer.bias), true);
    }
  };
}

Kernel RepeatedFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return Repeated<float, KernelMode::kAuto>(ctx);
}

}  // namespace

void RegisterFc(OpRegistry& ops) {
  ops.Add(OpDef("fc")
              .Doc("Out = Input W + Bias, and the positive part of that for relu, with the dims of "
                   "Input before in_num_col_dims as rows.")
              .Constraint("C1", "in_num_col_dims must lie in (0, rank of Input)")
              .Constraint("C2",
                          "W must be a matrix with a row for each column of Input, and under "
                          "padding_weights four more rows and columns")
              .Constraint("C3", "Bias must be [M] or [1, M]")
              .Constraint("C4", "all inputs must have one dtype")
              .Input("Input", "floating-point tensor of rank 2 or more")
              .Input("W", "[K, M]")
              .OptionalInput("Bias", "[M] or [1, M]")
              .Output("Out", "tensor of Input's leading dims and M")
              .Attr<int32_t>("in_num_col_dims", 1, "number of leading dims of Input in Out")
              .Attr<std::string>("activation_type", "", "relu or nothing")
              .OneOf({"", "relu"})
              .Attr<bool>("padding_weights", false,
                          "W has four rows and columns at the end that do not count")
              .Infer(InferFc)
              .Gradient(FcGradient)
              .Reference(Fc<float>, Fc<double>)
              .Fast(FcFast));
  ops.Add(OpDef("fusion_repeated_fc_relu")
              .Doc("A chain of layers, each the positive part of x W[i] + Bias[i], beginning with "
                   "X.")
              .Constraint("C1", "X must be a matrix")
              .Constraint("C2", "there must be two or more W, as many Bias and one ReluOut less")
              .Constraint("C3",
                          "each W must be a matrix with a row for each column before it, and "
                          "its Bias [M] or [1, M]")
              .Constraint("C4", "all inputs must have one dtype")
              .Input("X", "matrix")
              .VariadicInput("W", "matrices")
              .VariadicInput("Bias", "vectors")
              .OptionalVariadicOutput("ReluOut", "what the layers but the last give")
              .Output("Out", "what the last layer gives")
              .NoGradient("a fused form of trained programs")
              .Infer(InferRepeated)
              .Reference(Repeated<float>, Repeated<double>)
              .Fast(RepeatedFast));
}

}  // namespace coracle
