#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::fusion_squared_mat_sub_op {

void InferSquaredMatSub(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &y = ctx.Input("Y");
  ctx.Require("C1", x.shape.rank() == 2 && y.shape.rank() == 2, x.shape, y.shape);
  ctx.Require("C2", InferContext::Matches(x.shape[1], y.shape[0]), x.shape, y.shape);
  RequireSameDType(ctx, "C3", "Y", "X");
  const Shape out{x.shape[0], y.shape[1]};
  ctx.SetOutput("SquaredX", x);
  ctx.SetOutput("SquaredY", y);
  ctx.SetOutput("SquaredXY", x.dtype, out);
  ctx.SetOutput("Out", x.dtype, out);
}

template <class T>
void SquareAll(const T* from, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * from[i];
}

template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> SquaredMatSub(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const auto output = [&](const char* slot, const Shape& shape) {
    const TensorArg arg = ctx.Output(slot);
    return arg ? arg : ctx.Scratch(x.dtype, shape);
  };
  const TensorArg xx = output("SquaredX", x.shape), yy = output("SquaredY", y.shape);
  const TensorArg xy = output("SquaredXY", out.shape);
  const T scalar = static_cast<T>(ctx.Attr<float>("scalar"));
  const auto gemm = MakeGemm<T>({.m = x.shape[0], .n = y.shape[1], .k = x.shape[1]}, mode);
  if (!gemm) return {};
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    T *aa = ws.Data<T>(xx), *bb = ws.Data<T>(yy), *ab = ws.Data<T>(xy), *o = ws.Data<T>(out);
    SquareAll(a, x.numel, aa);
    SquareAll(b, y.numel, bb);
    gemm(a, b, ab);
    SquareAll(ab, out.numel, ab);
    gemm(aa, bb, o);
    for (int64_t i = 0; i < out.numel; ++i) o[i] = scalar * (ab[i] - o[i]);
  };
}

Kernel SquaredMatSubFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return SquaredMatSub<float, KernelMode::kAuto>(ctx);
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("fusion_squared_mat_sub")
          .Doc("Out = scalar ((X Y)^2 - X^2 Y^2), with element-wise squares and matrix products.")
          .Constraint("C1", "X and Y must be matrices")
          .Constraint("C2", "the columns of X must be as many as the rows of Y")
          .Constraint("C3", "X and Y must have one dtype")
          .Input("X", "[M, K]")
          .Input("Y", "[K, N]")
          .IntermediateOutput("SquaredX", "X^2")
          .IntermediateOutput("SquaredY", "Y^2")
          .IntermediateOutput("SquaredXY", "(X Y)^2")
          .Output("Out", "[M, N]")
          .Attr<float>("scalar", 1.f, "factor of Out")
          .NoGradient("a fused form of trained programs")
          .Infer(InferSquaredMatSub)
          .Reference(SquaredMatSub<float>, SquaredMatSub<double>)
          .Fast(SquaredMatSubFast));
}

}  // namespace coracle::fusion_squared_mat_sub_op
