#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/op_shapes.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::bmm_op {

void InferBmm(InferContext& ctx) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  ctx.Require("C1", x.rank() == 3 && y.rank() == 3, x, y);
  ctx.Require("C2", InferContext::Matches(x[0], y[0]), x, y);
  ctx.Require("C3", InferContext::Matches(x[2], y[1]), x, y);
  RequireSameDType(ctx, "C4", "X", "Y");
  VarMeta out = ctx.Input("X");
  out.shape = {std::max(x[0], y[0]), x[1], y[2]};
  ctx.SetOutput("Out", out);
}

template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Bmm(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const GemmSpec spec{.m = x.shape[1], .n = y.shape[2], .k = x.shape[2]};
  const GemmBatch batch{1, {x.shape[0]}, {1}, {1}, {1}};
  const auto gemm = MakeBatchGemm<T>(spec, batch, mode);
  if (!gemm) return {};
  return [=](Workspace& ws) { gemm(ws.Data<const T>(x), ws.Data<const T>(y), ws.Data<T>(out)); };
}

Kernel BmmFast(const PrepareContext& ctx) {
  const DType dtype = ctx.Input("X").dtype;
  if (dtype == DType::kFloat32) return Bmm<float, KernelMode::kAuto>(ctx);
  if (dtype == DType::kBFloat16) return Bmm<bfloat16, KernelMode::kAuto>(ctx);
  return {};
}

// dX = dOut Y^T, dY = X^T dOut.
void BmmGradient(GradientContext& g) {
  const std::string dout = g.OutputGrad("Out");
  g.Set("X", g.Make("matmul_v2", {{"X", {dout}}, {"Y", {g.Input("Y")}}}, {{"trans_y", true}}));
  g.Set("Y", g.Make("matmul_v2", {{"X", {g.Input("X")}}, {"Y", {dout}}}, {{"trans_x", true}}));
}

double BmmMultiplyAdds(const OpShapes& op) {
  const Shape *x = op.In("X"), *y = op.In("Y");
  return x && y && y->rank() == 3 ? Elements(*x) * Elements(*y, 2, 3) : 0;
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("bmm")
              .Doc("Out[i] = X[i] Y[i], a product of matrices for each i of the batch.")
              .Constraint("C1", "X and Y must have rank 3")
              .Constraint("C2", "X and Y must have one batch size")
              .Constraint("C3", "the columns of X must be as many as the rows of Y")
              .Constraint("C4", "X and Y must have one dtype")
              .Input("X", "[N, M, K]")
              .Input("Y", "[N, K, L]")
              .Output("Out", "[N, M, L]")
              .Rows(RowRule::kEach)
              .MultiplyAdds({"X", "Y"}, BmmMultiplyAdds)
              .Infer(InferBmm)
              .Gradient(BmmGradient)
              .Reference(Bmm<float>, Bmm<double>)
              .Fast(BmmFast));
}

}  // namespace coracle::bmm_op
