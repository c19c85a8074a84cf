#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/reduce/p_norm.h>
#include <coracle/operators/rules/same_type.h>

#include <cmath>

namespace coracle::p_norm_op {

// In float32 where v has 16 bits, so that quotients keep their digits.
Variable Widened(const Variable& v) {
  return Cast(v, IsHalf(v.dtype()) ? DType::kFloat32 : v.dtype());
}

// The sum over the slices, of the shape of Out.
Variable SumOfSlices(const Variable& v, const ReducedAxes& axes) {
  std::vector<int32_t> dims;
  for (int i = 0; i < axes.spread.rank(); ++i) {
    if (axes.reduce[i]) dims.push_back(i);
  }
  if (dims.empty()) return Sum(v);
  return Sum(v, dims, axes.out.rank() == axes.spread.rank());
}

// 1 where v is 0, else 0.
Variable IsZero(const Variable& v) { return Cast(Equal(v, ZerosLike(v)), v.dtype()); }

}  // namespace coracle::p_norm_op

namespace coracle::inline internal {

// With s = the slopes of Out by X, V = the gradient of X@GRAD, n = Out and sums over slices:
//   dOut@GRAD = sum(V s),
//   dX = Out@GRAD (p - 1) / n ((|X| / n)^(p - 2) V - s sum(V s)).
void SetGradientsOfNormGrad(GradientContext& g, const NormRule& rule) {
  using namespace p_norm_op;
  const Variable given = g.In("X"), x = Widened(given);
  const Variable dout = Widened(g.In("Out@GRAD")), v = Widened(g.Grad("X@GRAD"));
  const Variable slopes = rule.gradient(x, ZerosLike(dout) + 1.0);
  const Variable along = SumOfSlices(v * slopes, rule.axes);
  g.Set("Out@GRAD", Cast(along, given.dtype()));
  const double p = rule.p;
  if (p == 0 || p == 1 || std::isinf(p)) return g.Set("X", ZerosLike(given));
  const auto spread = [&](const Variable& of_slices) { return Spread(g, of_slices, rule.axes); };
  const Variable norm = rule.norm(x), divisor = norm + IsZero(norm);
  Variable weighted = v;
  if (p != 2) {
    // At X = 0 the ratio is 1, since a power of 0 may be infinite, and the sign makes a 0 of it.
    const Variable ratio = Abs(x) / spread(divisor) + IsZero(x);
    weighted = v * OfRankLike(x, Pow(ratio, p - 2) * Abs(Sign(x)));
  }
  const Variable scale = dout * Sign(norm) * (p - 1) / divisor;
  const Variable dx = (weighted - slopes * spread(along)) * spread(scale);
  g.Set("X", Cast(OfRankLike(given, dx), given.dtype()));
}

}  // namespace coracle::inline internal

namespace coracle::p_norm_op {

template <class Context>
ReducedAxes NormAxes(const Context& ctx, const Shape& x) {
  return MakeReducedAxes(x, {ctx.template Attr<int32_t>("axis")},
                         ctx.template Attr<bool>("asvector"), ctx.template Attr<bool>("keepdim"));
}

template <class T>
Kernel NormKernel(const PrepareContext& ctx, const ReducedAxes& axes, double p) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const ReduceNest nest = MakeReduceNest(x.shape, axes.reduce);
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    ForEachNorm(nest, p, ws.Data<const T>(x),
                [o](int64_t j, const ScaledNorm& norm) { o[j] = static_cast<T>(norm.product()); });
  };
}

template <class Context>
double OrderOf(const Context& ctx) {
  return static_cast<double>(ctx.template Attr<float>("porder"));
}

template <class T>
KernelOf<T> PNormReference(const PrepareContext& ctx) {
  return NormKernel<T>(ctx, NormAxes(ctx, ctx.Input("X").shape), OrderOf(ctx));
}

template <class T>
KernelOf<T> PNormGradReference(const PrepareContext& ctx) {
  return NormGradKernel<T>(ctx, NormAxes(ctx, ctx.Input("X").shape), OrderOf(ctx));
}

void CheckAxis(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  if (!ctx.Attr<bool>("asvector") && x.rank() > 0)
    ctx.Axis("C1", ctx.Attr<int32_t>("axis"), x.rank());
}

void InferPNorm(InferContext& ctx) {
  CheckAxis(ctx);
  VarMeta x = ctx.Input("X");
  x.shape = NormAxes(ctx, x.shape).out;
  ctx.SetOutput("Out", x);
}

void InferPNormGrad(InferContext& ctx) {
  CheckAxis(ctx);
  const Shape out = NormAxes(ctx, ctx.InputShape("X")).out;
  for (const char* slot : {"Out", "Out@GRAD"}) {
    if (!ctx.HasInput(slot)) continue;
    ctx.Require("C2", out.CompatibleWith(ctx.InputShape(slot)), slot, ctx.InputShape(slot),
                "the shape of the norm", out);
    RequireSameDType(ctx, "C3", slot, "X");
  }
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

void PNormGradGradient(GradientContext& g) {
  const AttrList attrs = g.ForwardAttrs({"porder", "axis", "keepdim", "asvector"});
  const NormRule rule = {OrderOf(g), NormAxes(g, g.In("X").shape()),
                         [&](const Variable& x) {
                           return g.Make("p_norm", {{"X", {x.name()}}}, attrs);
                         },
                         [&](const Variable& x, const Variable& dout) {
                           return g.Make("p_norm_grad",
                                         {{"X", {x.name()}}, {"Out@GRAD", {dout.name()}}}, attrs,
                                         "X@GRAD");
                         }};
  SetGradientsOfNormGrad(g, rule);
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

void DeclareNormAttrs(OpDef& def) {
  def.Attr<float>("porder", 2.0f, "the order p")
      .Attr<int32_t>("axis", -1, "the dim to reduce, negative from the end")
      .Attr<float>("epsilon", 1e-12f, "ignored: the gradient is 0 where X is 0")
      .Attr<bool>("keepdim", false, "whether reduced dims stay as 1")
      .Attr<bool>("asvector", false, "whether all dims are reduced, whatever axis says");
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("p_norm")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = the norm of order p = porder of X along axis: (sum |X|^p)^(1/p); for p = "
                   "0 the number of elements that are not 0, for inf and -inf the largest and "
                   "smallest |X|.")
              .Constraint("C1", "axis must lie in [-rank, rank)")
              .Input("X", "floating-point tensor")
              .Output("Out", "tensor without axis, or with 1 for it; [1] where no dim is left")
              .Apply(DeclareNormAttrs)
              .LodUnlessAxis("axis")
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Infer(InferPNorm)
              .GradientOp({"X", "Out"})
              .Reference(PNormReference<float>, PNormReference<double>));
  ops.Add(
      OpDef("p_norm_grad")
          .Doc("Gradient of p_norm: X@GRAD = sign(X) (|X| / Out)^(p - 1) Out@GRAD; 0 for p = 0 and "
               "where X or Out is 0; for inf and -inf all elements that equal Out get Out@GRAD. It "
               "is right where Out is too large or too small for its dtype. It departs from "
               "Paddle, which divides |X|^(p - 1) by Out^(p - 1) + epsilon.")
          .ConstraintsOf("p_norm", {"C1"})
          .Constraint("C2", "Out and Out@GRAD must have the shape of the norm of X")
          .Constraint("C3", "all inputs must have one dtype")
          .Input("X", "p_norm's X")
          .OptionalInput("Out", "p_norm's Out; made again when absent")
          .Input("Out@GRAD", "gradient of Out")
          .Output("X@GRAD", "gradient of X")
          .Apply(DeclareNormAttrs)
          .NoGradientTo({"Out"})
          .Infer(InferPNormGrad)
          .Gradient(PNormGradGradient)
          .Reference(PNormGradReference<float>, PNormGradReference<double>));
  ops.Add(OpDef("l1_norm")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = the sum of |X| over all elements. The gradient is 0 where X is 0.")
              .Input("X", "floating-point tensor")
              .Output("Out", "tensor [1]")
              .Rows(RowRule::kSum)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), {1}); })
              .Gradient(L1NormGradient)
              .Reference(L1NormReference<float>, L1NormReference<double>));
}

}  // namespace coracle::p_norm_op
