#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/kernels/total_order.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/output_grad.h>

#include <algorithm>
#include <type_traits>

namespace coracle::maxout_op {

VarMeta MaxoutOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 4, x.shape);
  const int32_t axis = ctx.Attr<int32_t>("axis"), groups = ctx.Attr<int32_t>("groups");
  ctx.Require("C2", axis == 1 || axis == 3 || axis == -1, axis);
  int64_t& channels = x.shape[axis == 1 ? 1 : 3];
  const bool whole = groups > 1 && (channels < 0 || channels % groups == 0);
  ctx.Require("C3", whole, "channels", channels, "groups", groups);
  if (channels > 0) channels /= groups;
  return x;
}

void InferMaxout(InferContext& ctx) { ctx.SetOutput("Out", MaxoutOut(ctx)); }

void InferMaxoutGrad(InferContext& ctx) {
  const VarMeta out = MaxoutOut(ctx);
  RequireOutGrad(ctx, "C4", out);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

// X as lines of `groups` elements, one line for each element of Out.
AxisView GroupsOf(const PrepareContext& ctx) {
  const Shape& x = ctx.Input("X").shape;
  AxisView view = ViewAxis(x, ctx.Attr<int32_t>("axis"));
  const int64_t groups = ctx.Attr<int32_t>("groups");
  return {view.outer * (view.n / groups), groups, view.inner};
}

// Calls body(first element of Out, first element of X, number of lines, step) for blocks of lines
// that begin `step` apart.
constexpr int64_t kBlock = 256;
template <class Body>
void ForEachBlock(const AxisView& view, Body&& body) {
  const bool last = view.inner == 1;  // the lines lie one after the other
  const int64_t outer = last ? 1 : view.outer, inner = last ? view.outer : view.inner;
  const int64_t blocks = (inner + kBlock - 1) / kBlock;
  const int64_t work = std::max<int64_t>(1, view.n * std::min(kBlock, inner));
  ParallelFor(outer * blocks, 1 + 16384 / work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kBlock, size = std::min(kBlock, inner - first);
      if (last)
        body(first, first * view.n, size, view.n);
      else
        body(i / blocks * inner + first, i / blocks * view.n * inner + first, size,
             std::integral_constant<int64_t, 1>());
    }
  });
}

template <class T>
KernelOf<T> MaxoutReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const AxisView view = GroupsOf(ctx);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ForEachBlock(view, [&](int64_t line, int64_t at, int64_t size, auto step) {
      T* top = o + line;
      for (int64_t i = 0; i < size; ++i) top[i] = in[at + i * step];
      for (int64_t g = 1; g < view.n; ++g) {
        const T* value = in + at + g * view.inner;
        for (int64_t i = 0; i < size; ++i)
          top[i] = Exceeds(value[i * step], top[i]) ? value[i * step] : top[i];
      }
    });
  };
}

template <class T>
KernelOf<T> MaxoutGradReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const AxisView view = GroupsOf(ctx);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *d = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    ForEachBlock(view, [&](int64_t line, int64_t at, int64_t size, auto step) {
      // Keeps the first of equal largest elements.
      T top[kBlock];
      int32_t best[kBlock] = {};
      for (int64_t i = 0; i < size; ++i) top[i] = in[at + i * step];
      for (int64_t g = 1; g < view.n; ++g) {
        const T* value = in + at + g * view.inner;
        for (int64_t i = 0; i < size; ++i) {
          const bool beats = Exceeds(value[i * step], top[i]);
          top[i] = beats ? value[i * step] : top[i];
          best[i] = beats ? static_cast<int32_t>(g) : best[i];
        }
      }
      for (int64_t g = 0; g < view.n; ++g) {
        T* to = o + at + g * view.inner;
        for (int64_t i = 0; i < size; ++i) to[i * step] = best[i] == g ? d[line + i] : T(0);
      }
    });
  };
}

// dOut' = the gradient of X@GRAD, taken where X was the largest: its product with the gradient op
// applied to ones, summed over each group.
void MaxoutGradGradient(GradientContext& g) {
  const int32_t groups = g.Attr<int32_t>("groups");
  const Variable dout = g.In("Out@GRAD"), ones = FillLike(dout, 1.0);
  const Variable chosen =
      g.Make("maxout_grad", {{"X", {g.Input("X")}}, {"Out@GRAD", {ones.name()}}},
             g.ForwardAttrs({"groups", "axis"}), "X@GRAD");
  const Variable masked = g.Grad("X@GRAD") * chosen;
  const bool first = g.Attr<int32_t>("axis") == 1;
  const int64_t channels = dout.shape()[first ? 1 : 3];
  if (channels == 0)
    return g.Set("Out@GRAD", ZerosLike(dout));  // reshape2 would treat the 0 differently
  if (first && channels < 0)
    throw Error(ErrorCode::kUnimplemented, "maxout: second gradients need known channels");
  const Variable grouped = first ? Reshape(masked, {0, static_cast<int32_t>(channels), groups, -1})
                                 : Reshape(masked, {-1, groups});
  const Variable sum = Sum(grouped, {first ? 2 : 1});
  g.Set("Out@GRAD",
        g.Make("reshape2_grad", {{"X", {dout.name()}}, {"Out@GRAD", {sum.name()}}}, {}, "X@GRAD"));
}

void DeclareMaxout(OpDef& def) {
  def.Attr<int32_t>("groups", "number of channels of X per channel of Out")
      .Range(2, {})
      .Attr<int32_t>("axis", 1, "axis of the channels: 1, or 3 (also -1)");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("maxout")
          .Doc("Channel c of Out = the element-wise maximum of the channels c groups to (c + 1) "
               "groups - 1 of X; nan if one of them is nan.")
          .Constraint("C1", "X must have rank 4")
          .Constraint("C2", "axis must be 1, 3 or -1")
          .Constraint("C3",
                      "the number of channels must be a multiple of groups, which must be above 1")
          .Apply(DeclareMaxout)
          .Input("X", "floating-point image tensor")
          .Output("Out", "tensor of X's shape, with fewer channels")
          .NoLod()
          .Rows(RowRule::kEach)
          .WorksAlong("axis")
          .Infer(InferMaxout)
          .GradientOp({"X"})
          .Reference(MaxoutReference<float>, MaxoutReference<double>));
  ops.Add(OpDef("maxout_grad")
              .Doc("Gradient of maxout: Out@GRAD goes to the first of the largest elements.")
              .ConstraintsOf("maxout", {"C1", "C2", "C3"})
              .Apply(DeclareMaxout)
              .Constraint("C4", "Out@GRAD must have Out's shape and X's dtype")
              .Input("X", "the value in the forward op")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .NoGradientTo({"X"})
              .Infer(InferMaxoutGrad)
              .Gradient(MaxoutGradGradient)
              .Reference(MaxoutGradReference<float>, MaxoutGradReference<double>));
}

}  // namespace coracle::maxout_op
