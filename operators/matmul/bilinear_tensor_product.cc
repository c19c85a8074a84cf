#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::bilinear_tensor_product_op {

void InferBilinear(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const Shape &x = out.shape, &y = ctx.InputShape("Y"), &w = ctx.InputShape("Weight");
  ctx.Require("C1", x.rank() == 2 && y.rank() == 2 && w.rank() == 3, x, y, w);
  ctx.Require("C2", InferContext::Matches(x[0], y[0]), x, y);
  ctx.Require("C3", InferContext::Matches(x[1], w[1]) && InferContext::Matches(y[1], w[2]), x, y,
              w);
  for (const char* slot : {"Y", "Weight"}) RequireSameDType(ctx, "C4", slot, "X");
  if (ctx.HasInput("Bias")) {
    ctx.Require("C5", ctx.InputShape("Bias").CompatibleWith({1, w[0]}), ctx.InputShape("Bias"),
                w[0]);
    RequireSameDType(ctx, "C4", "Bias", "X");
  }
  out.shape = {std::max(x[0], y[0]), w[0]};
  ctx.SetOutput("Out", out);
}

// Computes the product X W_m for each m, and multiplies its rows with those of Y.
template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Bilinear(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), weight = ctx.Input("Weight");
  const TensorArg bias = ctx.Input("Bias"), out = ctx.Output("Out");
  const int64_t rows = x.shape[0], a = x.shape[1], b = y.shape[1], count = weight.shape[0];
  if (out.numel == 0) return [](Workspace&) {};
  const auto gemm = MakeGemm<T>({.m = rows, .n = b, .k = a}, mode);
  if (!gemm) return {};
  const TensorArg product = ctx.Scratch(x.dtype, {MulDims(rows, b)});
  return [=](Workspace& ws) {
    const T *ys = ws.Data<const T>(y), *ws_data = ws.Data<const T>(weight);
    const T* add = bias ? ws.Data<const T>(bias) : nullptr;
    T *p = ws.Data<T>(product), *o = ws.Data<T>(out);
    for (int64_t m = 0; m < count; ++m) {
      gemm(ws.Data<const T>(x), ws_data + m * a * b, p);
      for (int64_t n = 0; n < rows; ++n) {
        double sum = add ? static_cast<double>(add[m]) : 0;
        for (int64_t j = 0; j < b; ++j)
          sum += static_cast<double>(p[n * b + j]) * static_cast<double>(ys[n * b + j]);
        o[n * count + m] = static_cast<T>(sum);
      }
    }
  };
}

Kernel BilinearFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return Bilinear<float, KernelMode::kAuto>(ctx);
}

// With D[m, n, 1] = dOut[n, m] and batched products over m:
//   dX = sum over m of D (Y W_m^T),  dY = sum over m of D (X W_m),  dW_m = (D X)^T Y,
//   dBias = sum over n of dOut.
void BilinearGradient(GradientContext& g) {
  const Variable x = g.In("X"), y = g.In("Y"), w = g.In("Weight"), dout = g.Grad("Out");
  const auto product = [&](const Variable& a, const Variable& b, const char* transpose) {
    AttrList attrs;
    if (*transpose) attrs.push_back({transpose, true});
    return g.Make("matmul_v2", {{"X", {a.name()}}, {"Y", {b.name()}}}, attrs);
  };
  const Variable turned =
      g.Make("transpose2", {{"X", {dout.name()}}}, {{"axis", std::vector<int32_t>{1, 0}}});
  const Variable d =
      g.Make("unsqueeze2", {{"X", {turned.name()}}}, {{"axes", std::vector<int32_t>{2}}});
  g.Set("X", Sum(product(y, w, "trans_y") * d, {0}));
  g.Set("Y", Sum(product(x, w, "") * d, {0}));
  g.Set("Weight", product(d * x, y, "trans_x"));
  if (g.HasInput("Bias")) g.Set("Bias", Sum(dout, {0}, true));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("bilinear_tensor_product")
              .Doc("Out[n, m] = X[n] Weight[m] Y[n]^T + Bias[m]: a bilinear form of the rows of X "
                   "and Y for each m.")
              .Constraint("C1", "X and Y must be matrices, and Weight have rank 3")
              .Constraint("C2", "X and Y must have the same number of rows")
              .Constraint("C3",
                          "the matrices of Weight must have a row for each column of X and a "
                          "column for each column of Y")
              .Constraint("C4", "all inputs must have one dtype")
              .Constraint("C5", "Bias must have the shape [1, M]")
              .Input("X", "[N, A]")
              .Input("Y", "[N, B]")
              .Input("Weight", "[M, A, B]")
              .OptionalInput("Bias", "[1, M]; none when absent")
              .Output("Out", "[N, M]")
              .Rows(RowRule::kEach)
              .Tables({"Weight", "Bias"})
              .Infer(InferBilinear)
              .Gradient(BilinearGradient)
              .Reference(Bilinear<float>, Bilinear<double>)
              .Fast(BilinearFast));
}

}  // namespace coracle::bilinear_tensor_product_op
