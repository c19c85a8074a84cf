#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/reduce.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/reduce/axes.h>
#include <coracle/operators/reduce/p_norm.h>

#include <cmath>

namespace coracle {

Variable NormGradient(const Variable& d, const Variable& out, const Variable& dout, double p,
                      const std::function<Variable(const Variable&)>& spread) {
  if (p == 0) return ZerosLike(d);
  // The elements are divided first: dout / out may overflow. Where out is 0, they are 0 too.
  const auto divisor = [&] { return spread(out + Cast(Equal(out, ZerosLike(out)), out.dtype())); };
  if (p == 2) return d / divisor() * spread(dout);
  const Variable sign = Sign(d);
  if (p == 1) return sign * spread(dout);
  if (std::isinf(p)) {
    const Variable tied = Cast(Equal(Abs(d), spread(out)), d.dtype());
    return sign * tied * spread(dout);
  }
  // At d = 0 the sign is 0; the ratio is then 1, since a power of 0 may be infinite.
  const Variable zero = Cast(Equal(d, ZerosLike(d)), d.dtype());
  const Variable ratio = Abs(d) / divisor() + zero;
  return sign * Pow(ratio, p - 1) * spread(dout);
}

namespace p_norm_op {

template <class Context>
ReducedAxes NormAxes(const Context& ctx, const Shape& x) {
  return MakeReducedAxes(x, {ctx.template Attr<int32_t>("axis")},
                         ctx.template Attr<bool>("asvector"), ctx.template Attr<bool>("keepdim"));
}

void InferPNorm(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  if (!ctx.Attr<bool>("asvector") && x.shape.rank() > 0)
    ctx.Axis("C1", ctx.Attr<int32_t>("axis"), x.shape.rank());
  x.shape = NormAxes(ctx, x.shape).out;
  ctx.SetOutput("Out", x);
}

template <class T>
Kernel NormKernel(const PrepareContext& ctx, const ReducedAxes& axes, double p) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const ReduceNest nest = MakeReduceNest(x.shape, axes.reduce);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ForEachOutput(nest, [&](int64_t j, const auto& each) {
      o[j] = static_cast<T>(NormOf(
          p, [&](const auto& f) { each([&](int64_t at) { f(static_cast<double>(in[at])); }); }));
    });
  };
}

template <class T>
KernelOf<T> PNormReference(const PrepareContext& ctx) {
  return NormKernel<T>(ctx, NormAxes(ctx, ctx.Input("X").shape),
                       static_cast<double>(ctx.Attr<float>("porder")));
}

void PNormGradient(GradientContext& g) {
  const Variable x = g.In("X"), out = g.Out("Out"), dout = g.Grad("Out");
  const ReducedAxes axes = NormAxes(g, x.shape());
  const Variable dx = NormGradient(x, out, dout, static_cast<double>(g.Attr<float>("porder")),
                                   [&](const Variable& value) { return Spread(g, value, axes); });
  g.Set("X", OfRankLike(x, dx));
}

template <class T>
KernelOf<T> L1NormReference(const PrepareContext& ctx) {
  return NormKernel<T>(ctx, MakeReducedAxes(ctx.Input("X").shape, {}, true, false), 1);
}

// dX = sign(X) dOut.
void L1NormGradient(GradientContext& g) {
  const Variable x = g.In("X");
  g.Set("X", OfRankLike(x, Sign(x) * g.Grad("Out")));
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("p_norm")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc(
              "Out = the norm of order p = porder of X along axis: (sum |X|^p)^(1/p); for p = "
              "0 the number of elements that are not 0, for inf and -inf the largest and "
              "smallest |X|. Gradient: X@GRAD = sign(X) (|X| / Out)^(p - 1) Out@GRAD; 0 for p = 0 "
              "and where Out is 0; for inf and -inf all elements that equal Out get it. It departs "
              "from Paddle, which divides |X|^(p - 1) by Out^(p - 1) + epsilon.")
          .Constraint("C1", "axis must lie in [-rank, rank)")
          .Input("X", "floating-point tensor")
          .Output("Out", "tensor without axis, or with 1 for it; [1] where no dim is left")
          .Attr<float>("porder", 2.0f, "the order p")
          .Attr<int32_t>("axis", -1, "the dim to reduce, negative from the end")
          .Attr<float>("epsilon", 1e-12f, "ignored: the gradient is 0 where Out is 0")
          .Attr<bool>("keepdim", false, "whether reduced dims stay as 1")
          .Attr<bool>("asvector", false, "whether all dims are reduced, whatever axis says")
          .LodUnlessAxis("axis")
          .Infer(InferPNorm)
          .Gradient(PNormGradient)
          .Reference(PNormReference<float>, PNormReference<double>));
  ops.Add(OpDef("l1_norm")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = the sum of |X| over all elements. The gradient is 0 where X is 0.")
              .Input("X", "floating-point tensor")
              .Output("Out", "tensor [1]")
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), {1}); })
              .Gradient(L1NormGradient)
              .Reference(L1NormReference<float>, L1NormReference<double>));
}

}  // namespace p_norm_op
}  // namespace coracle
