#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/slice_norms.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/reduce/axes.h>
#include <coracle/operators/reduce/p_norm.h>

#include <cmath>

namespace coracle {

namespace p_norm_op {

// The factor of d before its norm is computed: 1 or, if `out` is near an end of its dtype's range,
// a power of two that moves it away from there.
Variable Moved(const Variable& out) {
  const bool is_double = out.dtype() == DType::kFloat64;
  const double power = std::ldexp(1, 64);
  const Variable large = Greater(out, is_double ? 1e300 : 1e30);
  const Variable small = Less(out, is_double ? 1e-290 : 1e-30);
  const auto number = [&](const Variable& flag) { return Cast(flag, out.dtype()); };
  return number(Not(Or(large, small))) + number(large) * (1 / power) + number(small) * power;
}

Variable WideGradient(const Variable& d, const Variable& out, const Variable& dout,
                      const NormRule& rule) {
  const Variable sign = Sign(d);
  if (rule.p == 1) return sign * rule.spread(dout);
  if (std::isinf(rule.p)) {
    const Variable tied = Cast(Equal(Abs(d), rule.spread(out)), d.dtype());
    return sign * tied * rule.spread(dout);
  }
  const Variable moved = OfRankLike(d, d * rule.spread(Moved(out))), norm = rule.norm(moved);
  // Divides the elements first, since dout / norm may overflow. Where the norm is 0, they are
  // 0 too.
  const Variable divisor = rule.spread(norm + Cast(Equal(norm, ZerosLike(norm)), norm.dtype()));
  if (rule.p == 2) return moved / divisor * rule.spread(dout);
  // At d = 0 the sign is 0; the ratio is then 1, since a power of 0 may be infinite.
  const Variable zero = Cast(Equal(d, ZerosLike(d)), d.dtype());
  const Variable ratio = Abs(moved) / divisor + zero;
  return sign * Pow(ratio, rule.p - 1) * rule.spread(dout);
}

}  // namespace p_norm_op

Variable NormGradient(const Variable& d, const Variable& out, const Variable& dout,
                      const NormRule& rule) {
  if (rule.p == 0) return ZerosLike(d);
  const DType wide = IsHalf(d.dtype()) ? DType::kFloat32 : d.dtype();
  return Cast(p_norm_op::WideGradient(Cast(d, wide), Cast(out, wide), Cast(dout, wide), rule),
              d.dtype());
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
    const auto store = [o](int64_t j, const ScaledNorm& norm) {
      o[j] = static_cast<T>(norm.product());
    };
    if (p == 2) return ForEachL2Norm(nest, in, store);
    ForEachOutput(nest, [&](int64_t j, const auto& each) {
      store(j, ScaledNormOf(p, [&](const auto& f) {
              each([&](int64_t at) { f(static_cast<double>(in[at])); });
            }));
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
  const NormRule rule = {static_cast<double>(g.Attr<float>("porder")),
                         [&](const Variable& v) {
                           return g.Make("p_norm", {{"X", {v.name()}}},
                                         g.ForwardAttrs({"porder", "axis", "keepdim", "asvector"}));
                         },
                         [&](const Variable& v) { return Spread(g, v, axes); }};
  const Variable dx = NormGradient(x, out, dout, rule);
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
  ops.Add(OpDef("p_norm")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = the norm of order p = porder of X along axis: (sum |X|^p)^(1/p); for p = "
                   "0 the number of elements that are not 0, for inf and -inf the largest and "
                   "smallest |X|. Gradient: X@GRAD = sign(X) (|X| / Out)^(p - 1) Out@GRAD; 0 for p "
                   "= 0 and where Out is 0; for inf and -inf all elements that equal Out get it. "
                   "Paddle divides |X|^(p - 1) by Out^(p - 1) + epsilon instead.")
              .Constraint("C1", "axis must lie in [-rank, rank)")
              .Input("X", "floating-point tensor")
              .Output("Out", "tensor without axis, or with 1 for it; [1] if no dim is left")
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
