#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::cross_op {

constexpr int32_t kUnset = 9;  // the value of attr dim for "the first dim of size 3"

// The axis of the vectors; -1 if there is none.
int AxisOf(const Shape& x, int32_t dim) {
  int axis = -1;
  if (dim != kUnset) return x.NormalizeAxis(dim, &axis) ? axis : -1;
  for (int i = x.rank() - 1; i >= 0; --i) {
    if (x[i] == 3) axis = i;
  }
  return axis;
}

void InferCross(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  const int32_t dim = ctx.Attr<int32_t>("dim");
  const int axis = AxisOf(x, dim);
  const bool open = dim == kUnset && !x.IsKnown();
  ctx.Require("C1", open || (axis >= 0 && InferContext::Matches(x[axis], 3)), "dim", dim, "X", x);
  RequireSameType(ctx, "C2", "Y", "X");
  ctx.SetOutput("Out", ctx.Input("X"));
}

template <class T>
KernelOf<T> Cross(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const AxisView view = ViewAxis(x.shape, AxisOf(x.shape, ctx.Attr<int32_t>("dim")));
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    T* o = ws.Data<T>(out);
    ForEachLine(view, [&](int64_t, int64_t at) {
      for (int64_t k = 0; k < 3; ++k) {
        const int64_t i = at + (k + 1) % 3 * view.inner, j = at + (k + 2) % 3 * view.inner;
        o[at + k * view.inner] = WrapSub(WrapMul(a[i], b[j]), WrapMul(a[j], b[i]));
      }
    });
  };
}

// dX = Y x dOut, dY = dOut x X.
void CrossGradient(GradientContext& g) {
  const std::string dout = g.OutputGrad("Out");
  const AttrList dim = g.ForwardAttrs({"dim"});
  g.Set("X", g.Make("cross", {{"X", {g.Input("Y")}}, {"Y", {dout}}}, dim));
  g.Set("Y", g.Make("cross", {{"X", {dout}}, {"Y", {g.Input("X")}}}, dim));
}

// Without dim, a rank that has three rows would take them as the elements of a vector.
RowEffect CrossRows(const RowQuery& query) {
  const auto dim = query.spec.AttrOf<int32_t>(query.op, "dim");
  const int axis = dim < 0 ? dim + query.rank : dim;
  return dim == kUnset || axis == query.axis ? RowRule::kMixes : RowRule::kEach;
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("cross")
          .Doc("Out = the cross products of the vectors of three elements along dim. Integers "
               "wrap around.")
          .Constraint("C1", "dim must be a dim of size 3, or 9 if X has such a dim")
          .Constraint("C2", "Y must have X's shape and dtype")
          .Input("X", "tensor of numbers")
          .Input("Y", "tensor of X's shape and dtype")
          .Output("Out", "tensor of X's shape and dtype")
          .Attr<int32_t>("dim", kUnset,
                         "the dim of the vectors, negative from the end; 9: the first of size 3")
          .Rows(CrossRows, "each by itself, unless dim names them, or none")
          .Infer(InferCross)
          .Gradient(CrossGradient)
          .Reference(Cross<float>, Cross<double>, Cross<int32_t>, Cross<int64_t>));
}

}  // namespace coracle::cross_op
