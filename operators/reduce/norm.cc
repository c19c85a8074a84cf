#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
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
      double squares = epsilon;
      for (int64_t i = at; i < at + view.n * view.inner; i += view.inner)
        squares += static_cast<double>(in[i]) * static_cast<double>(in[i]);
      const double length =
          IsSafeSum(squares)
              ? std::sqrt(squares)
              : std::hypot(std::sqrt(epsilon), NormOf(2, [&](const auto& f) {
                             for (int64_t i = at; i < at + view.n * view.inner; i += view.inner)
                               f(static_cast<double>(in[i]));
                           }));
      if (norm) norm[line] = static_cast<T>(length);
      for (int64_t i = at; i < at + view.n * view.inner; i += view.inner)
        o[i] = static_cast<T>(static_cast<double>(in[i]) / length);
    });
  };
}

// With y = Out:  dX = (dOut - y sum(y dOut)) / Norm + y dNorm.
void NormGradient(GradientContext& g) {
  const Variable x = g.In("X"), y = g.Out("Out"), dout = g.Grad("Out");
  const std::vector<int32_t> axis = {g.Attr<int32_t>("axis")};
  const auto epsilon = static_cast<double>(g.Attr<float>("epsilon"));
  const Variable norm =
      g.HasOutput("Norm") ? g.Out("Norm") : Sqrt(Sum(Square(x), axis, true) + epsilon);
  const Variable along = Sum(y * dout, axis, true);
  const Variable dx = (dout - y * along) / norm;
  g.Set("X", g.HasOutputGrad("Norm") ? dx + y * g.Grad("Norm") : dx);
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
              .Attr<float>("epsilon", 1e-10f, "keeps Norm off 0")
              .NoLod()
              .Infer(InferNorm)
              .Gradient(NormGradient)
              .Reference(NormReference<float>, NormReference<double>));
}

}  // namespace coracle::norm_op
