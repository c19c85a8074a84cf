#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::mv_op {

void InferMv(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const Shape& vec = ctx.InputShape("Vec");
  ctx.Require("C1", out.shape.rank() == 2 && vec.rank() == 1, out.shape, vec);
  ctx.Require("C2", InferContext::Matches(out.shape[1], vec[0]), out.shape, vec);
  RequireSameDType(ctx, "C3", "X", "Vec");
  out.shape = {out.shape[0]};
  ctx.SetOutput("Out", out);
}

template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Mv(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), vec = ctx.Input("Vec"), out = ctx.Output("Out");
  const auto gemm = MakeGemm<T>({.m = x.shape[0], .n = 1, .k = x.shape[1]}, mode);
  if (!gemm) return {};
  return [=](Workspace& ws) { gemm(ws.Data<const T>(x), ws.Data<const T>(vec), ws.Data<T>(out)); };
}

Kernel MvFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return Mv<float, KernelMode::kAuto>(ctx);
}

// dX = dOut Vec^T, dVec = X^T dOut.
void MvGradient(GradientContext& g) {
  const std::string dout = g.OutputGrad("Out");
  const Variable column =
      g.Make("unsqueeze2", {{"X", {dout}}}, {{"axes", std::vector<int32_t>{1}}});
  g.Set("X", column * g.In("Vec"));
  g.Set("Vec", g.Make("matmul_v2", {{"X", {g.Input("X")}}, {"Y", {dout}}}, {{"trans_x", true}}));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("mv")
              .Doc("Out = X Vec, the product of a matrix and a vector.")
              .Constraint("C1", "X must be a matrix and Vec a vector")
              .Constraint("C2", "the columns of X must equal the elements of Vec in number")
              .Constraint("C3", "X and Vec must have one dtype")
              .Input("X", "[M, N]")
              .Input("Vec", "[N]")
              .Output("Out", "[M]")
              .Rows(RowRule::kEach)
              .Infer(InferMv)
              .Gradient(MvGradient)
              .Reference(Mv<float>, Mv<double>)
              .Fast(MvFast));
}

}  // namespace coracle::mv_op
