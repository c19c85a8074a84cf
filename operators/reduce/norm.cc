#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/operators.h>

#include <algorithm>
#include <cmath>

namespace coracle::norm_op {

void InferNorm(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() > 0, x.shape);
  const int axis = ctx.Axis("C1", ctx.Attr<int32_t>("axis"), x.shape.rank());
  ctx.SetOutput("Out", x);
  x.shape[axis] = 1;
  ctx.SetOutput("Norm", x);
}

template <class T>
KernelOf<T> NormReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), norms = ctx.Output("Norm");
  const AxisView view = ViewAxis(x.shape, ctx.Attr<int32_t>("axis"));
  const auto epsilon = static_cast<double>(ctx.Attr<float>("epsilon"));
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    T* norm = norms ? ws.Data<T>(norms) : nullptr;
    // Lines without elements are not visited.
    if (norm && view.n == 0) std::fill_n(norm, norms.numel, static_cast<T>(std::sqrt(epsilon)));
    ForEachLine(view, [&](int64_t line, int64_t at) {
      const auto each = [&](const auto& f) {
        for (int64_t i = at; i < at + view.n * view.inner; i += view.inner)
          f(static_cast<double>(in[i]));
      };
      double squares = epsilon;
      each([&](double v) { squares += v * v; });
      const bool safe = IsSafeSum(squares);
      ScaledNorm length = safe ? ScaledNorm{1, std::sqrt(squares)} : ScaledNormOf(2, each);
      if (!safe && length.product() < 1e300)
        length = {1, std::hypot(std::sqrt(epsilon), length.product())};
      if (norm) norm[line] = static_cast<T>(length.product());
      for (int64_t i = at; i < at + view.n * view.inner; i += view.inner)
        o[i] = static_cast<T>(static_cast<double>(in[i]) / length.unit / length.value);
    });
  };
}

// The square root of Norm, in float64: unlike the squares and Norm itself, it does not exceed the
// range of X's dtype.
Variable RootOfNorm(GradientContext& g, const Variable& x) {
  if (g.HasOutput("Norm") && !IsHalf(x.dtype())) return Sqrt(g.Out("Norm"));
  const Variable norm = g.Make("frobenius_norm", {{"X", {x.name()}}},
                               {{"dim", std::vector<int32_t>{g.Attr<int32_t>("axis")}},
                                {"keep_dim", true},
                                {"out_dtype", static_cast<int32_t>(DType::kFloat64)}});
  const double epsilon = std::sqrt(static_cast<double>(g.Attr<float>("epsilon")));
  const Variable larger = Max(norm, epsilon);
  return Sqrt(larger * Sqrt(Square(norm / larger) + Square(epsilon / larger)));
}

// With y = Out:  dX = (dOut - y sum(y dOut)) / Norm + y dNorm.
void NormGradient(GradientContext& g) {
  const Variable x = g.In("X");
  const DType wide = IsHalf(x.dtype()) ? DType::kFloat32 : x.dtype();
  const Variable y = Cast(g.Out("Out"), wide), dout = Cast(g.Grad("Out"), wide);
  const Variable along = Sum(y * dout, {g.Attr<int32_t>("axis")}, true);
  const Variable root = Cast(RootOfNorm(g, x), wide);
  Variable dx = (dout - y * along) / root / root;
  if (g.HasOutputGrad("Norm")) dx = dx + y * Cast(g.Grad("Norm"), wide);
  g.Set("X", Cast(dx, x.dtype()));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("norm")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = X / Norm, with Norm = sqrt(sum of X^2 along axis + epsilon).")
              .Constraint("C1", "axis must lie in [-rank, rank)")
              .Input("X", "floating-point tensor of rank 1 or more")
              .Output("Out", "tensor of X's shape and dtype")
              .IntermediateOutput("Norm", "tensor of X's shape with 1 for axis")
              .Attr<int32_t>("axis", "the dim whose elements form a vector, negative from the end")
              .Attr<float>("epsilon", 1e-10f, "avoids division by 0")
              .NoLod()
              .Infer(InferNorm)
              .Gradient(NormGradient)
              .Reference(NormReference<float>, NormReference<double>));
}

}  // namespace coracle::norm_op
