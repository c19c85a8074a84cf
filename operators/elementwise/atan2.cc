#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <cmath>

namespace coracle::atan2_op {

void InferAtan2(InferContext& ctx) {
  VarMeta out = ctx.Input("X1");
  ctx.Require("C1", out.shape.CompatibleWith(ctx.InputShape("X2")), out.shape,
              ctx.InputShape("X2"));
  RequireSameDType(ctx, "C2", "X1", "X2");
  if (IsInteger(out.dtype)) out.dtype = DType::kFloat64;
  ctx.SetOutput("Out", out);
}

template <class T>
KernelOf<T> Atan2Reference(const PrepareContext& ctx) {
  using Real = std::conditional_t<std::is_integral_v<T>, double, T>;
  const TensorArg x1 = ctx.Input("X1"), x2 = ctx.Input("X2"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x1), *b = ws.Data<const T>(x2);
    Real* o = ws.Data<Real>(out);
    ParallelFor(out.numel, 16384, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        o[i] = std::atan2(static_cast<Real>(a[i]), static_cast<Real>(b[i]));
    });
  };
}

// With m = max(|X1|, |X2|), which keeps the squares from overflow and underflow, a = X1 / m and b =
// X2 / m: dX1 = dOut b / (a^2 + b^2) / m, dX2 = -dOut a / (a^2 + b^2) / m, both 0 at (0, 0).
void Atan2Gradient(GradientContext& g) {
  const Variable x1 = g.In("X1"), x2 = g.In("X2"), larger = Max(Abs(x1), Abs(x2));
  const Variable zeros = Cast(Equal(larger, ZerosLike(larger)), larger.dtype());  // 1 at (0, 0)
  const Variable positive = larger + zeros;
  const Variable m = g.Make("stop_gradient", {{"X", {positive.name()}}});
  const Variable a = x1 / m, b = x2 / m, square = Square(a) + Square(b) + zeros;
  const Variable s = g.Grad("Out") / square;
  g.Set("X1", b * s / m);
  g.Set("X2", -(a * s / m));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("atan2")
              .Doc("Out = the angle of the point (X2, X1), in [-pi, pi], element by element. "
                   "Integers give float64.")
              .Constraint("C1", "X1 and X2 must have one shape")
              .Constraint("C2", "X1 and X2 must have one dtype")
              .Input("X1", "the ordinates")
              .Input("X2", "the abscissas, of X1's shape and dtype")
              .Output("Out", "tensor of X1's shape")
              .Elementwise()
              .Infer(InferAtan2)
              .Gradient(Atan2Gradient)
              .Reference(Atan2Reference<float>, Atan2Reference<double>, Atan2Reference<int32_t>,
                         Atan2Reference<int64_t>));
}

}  // namespace coracle::atan2_op
