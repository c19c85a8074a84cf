#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/promotion.h>

namespace coracle::dot_op {

void InferDot(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 1 || x.shape.rank() == 2, x.shape);
  ctx.Require("C2", x.shape.CompatibleWith(ctx.InputShape("Y")), x.shape, ctx.InputShape("Y"));
  x.dtype = RequirePromotable(ctx, "C3");
  x.shape[x.shape.rank() - 1] = 1;
  ctx.SetOutput("Out", x);
}

// out[r] = sum(x, y, n) of row r.
template <class T, class SumRow>
Kernel DotKernel(const PrepareContext& ctx, SumRow sum) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const int64_t n = x.shape[x.shape.rank() - 1];
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    T* o = ws.Data<T>(out);
    ParallelFor(out.numel, 1 + 32768 / (1 + n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) o[r] = sum(a + r * n, b + r * n, n);
    });
  };
}

template <class T>
KernelOf<T> DotReference(const PrepareContext& ctx) {
  if (MixesDTypes(ctx)) return PrepareComplex(ctx);
  return DotKernel<T>(ctx, [](const T* x, const T* y, int64_t n) {
    using Acc = std::conditional_t<std::is_integral_v<T>, T,
                                   std::conditional_t<kIsComplex<T>, complex128, double>>;
    Acc sum = 0;
    for (int64_t i = 0; i < n; ++i)
      sum = WrapAdd(sum, WrapMul(static_cast<Acc>(x[i]), static_cast<Acc>(y[i])));
    return static_cast<T>(sum);
  });
}

Kernel DotFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32 || MixesDTypes(ctx)) return {};
  return DotKernel<float>(ctx, simd::Dot);
}

// The operand, conjugated if it is complex.
Variable ConjugateOf(GradientContext& g, const char* slot) {
  const Variable x = g.In(slot);
  return IsComplex(x.dtype()) ? g.Make("conj", {{"X", {x.name()}}}) : x;
}

// dX = conj(Y) dOut, dY = conj(X) dOut; the real part for a real operand with a complex one.
void DotGradient(GradientContext& g) {
  const Variable dout = g.Grad("Out"), x = ConjugateOf(g, "X"), y = ConjugateOf(g, "Y");
  g.Set("X", Cast(y * dout, g.In("X").dtype()));
  g.Set("Y", Cast(x * dout, g.In("Y").dtype()));
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("dot")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Out = the sum of X Y over the last dim, without conjugation. Integers wrap around.")
          .Constraint("C1", "X must have rank 1 or 2")
          .Constraint("C2", "X and Y must have one shape")
          .Constraint("C3",
                      "X and Y must have one dtype, or one be complex and the other float32, "
                      "float64 or complex")
          .Input("X", "tensor of numbers, [K] or [N, K]")
          .Input("Y",
                 "tensor of X's shape and dtype; a real operand with a complex one is converted to "
                 "complex, and its gradient is the real part")
          .Output("Out", "[1] or [N, 1]")
          .Rows(RowRule::kEach)
          .Infer(InferDot)
          .Gradient(DotGradient)
          .Reference(DotReference<float>, DotReference<double>, DotReference<int32_t>,
                     DotReference<int64_t>, DotReference<complex64>, DotReference<complex128>)
          .Fast(DotFast));
}

}  // namespace coracle::dot_op
