#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/kernels/sum_of_squares.h>
#include <coracle/operators/update/update.h>

#include <cmath>

namespace coracle::clip_by_norm_op {

void InferClipByNorm(InferContext& ctx) {
  if (ctx.HasInput("MaxNorm"))
    RequireScalar(ctx, "C2", "MaxNorm");
  else
    ctx.Require("C1", ctx.Attr<float>("max_norm") > 0, ctx.Attr<float>("max_norm"));
  ctx.SetOutput("Out", ctx.Input("X"));
}

ScalarInput MaxNorm(const PrepareContext& ctx) {
  return ScalarInput(ctx.Input("MaxNorm"),
                     ctx.HasInput("MaxNorm") ? 0 : ctx.Attr<float>("max_norm"));
}

// 1 up to the limit, then limit / norm. A nan norm gives a nan, so that it is noticed.
double Factor(double squares, double max_norm) {
  const double norm = std::sqrt(squares);
  return norm <= max_norm ? 1.0 : max_norm / norm;
}

// Duplicates are added up first.
template <class T>
Kernel ClipRowsByNorm(const PrepareContext& ctx) {
  const RowsInput x(ctx, "X");
  const RowsOutput out(ctx, "Out");
  const RowGrouper grouper(ctx);
  const ScalarInput max_norm = MaxNorm(ctx);
  return [=](Workspace& ws) {
    const std::span<T> merged = MergeRows<T>(ws, x(ws), grouper, out).value.template span<T>();
    double squares = 0;
    for (T v : merged) squares += static_cast<double>(v) * static_cast<double>(v);
    const T factor = static_cast<T>(Factor(squares, max_norm(ws)));
    for (T& v : merged) v = v * factor;
  };
}

template <class T>
KernelOf<T> ClipByNormReference(const PrepareContext& ctx) {
  if (IsSparse(ctx.Input("X"))) return ClipRowsByNorm<T>(ctx);
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const ScalarInput max_norm = MaxNorm(ctx);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    double squares = 0;
    for (int64_t i = 0; i < x.numel; ++i)
      squares += static_cast<double>(in[i]) * static_cast<double>(in[i]);
    const T factor = static_cast<T>(Factor(squares, max_norm(ws)));
    for (int64_t i = 0; i < x.numel; ++i) o[i] = in[i] * factor;
  };
}

Kernel ClipByNormFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32 || IsSparse(x)) return {};
  const ScalarInput max_norm = MaxNorm(ctx);
  const auto squares = SumOfSquares(ctx, x);
  const simd::UnaryLoop scale = simd::FindUnary(simd::Unary::kScale);
  return [=](Workspace& ws) {
    const float* in = ws.Data<const float>(x);
    float* o = ws.Data<float>(out);
    const float factor = static_cast<float>(Factor(squares(ws), max_norm(ws)));
    if (in == o && factor == 1.0f) return;
    ParallelFor(x.numel, 65536, [&](int64_t begin, int64_t end) {
      scale(in + begin, o + begin, end - begin, {factor, 0, 0});
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("clip_by_norm")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = X when the Euclidean norm of X is at most max_norm, else X max_norm / "
                   "norm. Duplicates in selected rows are added up first.")
              .Constraint("C1", "max_norm must be positive")
              .Constraint("C2", "MaxNorm must be one float32 or float64")
              .Input("X", "floating-point tensor or selected rows")
              .OptionalInput("MaxNorm", "tensor [1]; replaces attr max_norm")
              .Output("Out", "what X is, of its shape and dtype")
              .Takes(VarType::kSelectedRows, {"X"})
              .Attr<float>("max_norm", 0.0f, "highest norm; required without MaxNorm")
              .KernelTypeFrom("X")
              .Inplace("X", "Out")
              .Infer(InferClipByNorm)
              .NoGradient("it is applied to gradients, after differentiation")
              .Reference(ClipByNormReference<float>, ClipByNormReference<double>)
              .Fast(ClipByNormFast));
}

}  // namespace coracle::clip_by_norm_op
