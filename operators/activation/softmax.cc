#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::softmax_op {

void InferAxis(InferContext& ctx) {
  const int rank = std::max(1, ctx.InputShape("X").rank());
  ctx.Axis("C1", ctx.Attr<int32_t>("axis"), rank);
  ctx.SetOutput("Out", ctx.Input("X"));
}

void InferGrad(InferContext& ctx) {
  RequireSameType(ctx, "C1", "Out@GRAD", "Out");
  ctx.SetOutput("X@GRAD", ctx.Input("Out"));
}

template <class T>
using Line = void (*)(const T* x, T* y, int64_t n, int64_t stride);
template <class T>
using GradLine = void (*)(const T* y, const T* dy, T* dx, int64_t n, int64_t stride);

template <class T>
void SoftmaxOnly(const T* x, T* y, int64_t n, int64_t stride) {
  SoftmaxLine(x, y, n, stride);
}
void SoftmaxOnlyRow(const float* x, float* y, int64_t n) { SoftmaxRow(x, y, n); }

template <class T>
Kernel ForwardReference(const PrepareContext& ctx, Line<T> line) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const AxisView view = ViewAxis(x.shape, ctx.Attr<int32_t>("axis"));
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ForEachLine(view, [&](int64_t, int64_t at) { line(in + at, o + at, view.n, view.inner); });
  };
}

template <class T>
Kernel GradReference(const PrepareContext& ctx, GradLine<T> line) {
  const TensorArg out = ctx.Input("Out"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const AxisView view = ViewAxis(out.shape, ctx.Attr<int32_t>("axis"));
  return [=](Workspace& ws) {
    const T* y = ws.Data<const T>(out);
    const T* g = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    ForEachLine(view,
                [&](int64_t, int64_t at) { line(y + at, g + at, o + at, view.n, view.inner); });
  };
}

using Row = void (*)(const float* x, float* y, int64_t n);
using GradRow = void (*)(const float* y, const float* dy, float* dx, int64_t n);

// Supports contiguous lines only.
Kernel ForwardFast(const PrepareContext& ctx, Row row) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const AxisView view = ViewAxis(x.shape, ctx.Attr<int32_t>("axis"));
  if (x.dtype != DType::kFloat32 || view.inner != 1) return {};
  return [=](Workspace& ws) {
    const float* in = ws.Data<const float>(x);
    float* o = ws.Data<float>(out);
    ForEachLine(view, [&](int64_t, int64_t at) { row(in + at, o + at, view.n); });
  };
}

Kernel GradFast(const PrepareContext& ctx, GradRow row) {
  const TensorArg out = ctx.Input("Out"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const AxisView view = ViewAxis(out.shape, ctx.Attr<int32_t>("axis"));
  if (out.dtype != DType::kFloat32 || view.inner != 1) return {};
  return [=](Workspace& ws) {
    const float* y = ws.Data<const float>(out);
    const float* g = ws.Data<const float>(dout);
    float* o = ws.Data<float>(dx);
    ForEachLine(view, [&](int64_t, int64_t at) { row(y + at, g + at, o + at, view.n); });
  };
}

// dx = y (g - s), s = sum(g y). With u = d(dx): the Jacobian is symmetric, so g' is softmax_grad of
// u, and y' = u g - u s - g sum(u y).
void SoftmaxGradGradient(GradientContext& g) {
  const Variable y = g.In("Out"), dy = g.In("Out@GRAD"), u = g.Grad("X@GRAD");
  const auto sum = [&](const Variable& x) { return Sum(x, {g.Attr<int32_t>("axis")}, true); };
  g.Set("Out@GRAD", g.Make("softmax_grad", {{"Out", {y.name()}}, {"Out@GRAD", {u.name()}}},
                           g.ForwardAttrs({"axis"}), "X@GRAD"));
  const Variable uy = sum(u * y), gy = sum(dy * y);
  g.Set("Out", u * (dy - gy) - dy * uy);
}

// dx = g - e s, e = exp(y), s = sum(g). With u = d(dx): g' = u - sum(u e), y' = -u e s.
void LogSoftmaxGradGradient(GradientContext& g) {
  const Variable y = g.In("Out"), dy = g.In("Out@GRAD"), u = g.Grad("X@GRAD");
  const auto sum = [&](const Variable& x) { return Sum(x, {g.Attr<int32_t>("axis")}, true); };
  const Variable ue = u * Exp(y);
  g.Set("Out@GRAD", u - sum(ue));
  g.Set("Out", -(ue * sum(dy)));
}

void DeclareAxis(OpDef& def) {
  def.Attr<int32_t>("axis", -1, "the axis whose elements add up to 1, counted from the end if < 0");
}
void DeclareSoftmaxAttrs(OpDef& def) {
  def.Apply(DeclareAxis)
      .Attr<std::string>("data_format", "AnyLayout", "accepted from files, not used")
      .Attr<bool>("is_test", false, "accepted from files, not used");
}

OpDef ForwardDef(const std::string& type, const std::string& formula) {
  return OpDef(type)
      .Doc("Out = " + formula + ", max and sum along axis.")
      .Constraint("C1", "axis must lie in [-rank, rank)")
      .Input("X", "floating-point tensor")
      .Output("Out", "tensor of X's shape and dtype")
      .Inplace("X", "Out")
      .ComputesIn(OpPrecision::kFloat32)
      .Rows(RowRule::kEach)
      .Axes("axis")
      .Scores({"X", "Out"})
      .Infer(InferAxis)
      .GradientOp({"Out"});
}

OpDef GradDef(const std::string& type, const std::string& formula) {
  return OpDef(type + "_grad")
      .Doc("Gradient of " + type + ": " + formula)
      .Constraint("C1", "Out@GRAD must have Out's shape and dtype")
      .Input("Out", type + "'s Out")
      .Input("Out@GRAD", "gradient of " + type + "'s Out")
      .Output("X@GRAD", "gradient of " + type + "'s X")
      .Inplace("Out@GRAD", "X@GRAD")
      .Infer(InferGrad);
}

void RegisterLogSoftmax(OpRegistry& ops) {
  ops.Add(ForwardDef("log_softmax", "X - max - log(sum(exp(X - max)))")
              .Apply(DeclareAxis)
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return ForwardReference<T>(c, LogSoftmaxLine<T>);
              })
              .Fast([](const PrepareContext& c) { return ForwardFast(c, LogSoftmaxRow); }));
  ops.Add(GradDef("log_softmax", "X@GRAD = Out@GRAD - exp(Out) sum(Out@GRAD) along axis.")
              .AttrsOf("log_softmax")
              .Gradient(LogSoftmaxGradGradient)
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return GradReference<T>(c, LogSoftmaxGradLine<T>);
              })
              .Fast([](const PrepareContext& c) { return GradFast(c, LogSoftmaxGradRow); }));
}

void Register(OpRegistry& ops) {
  ops.Add(ForwardDef("softmax", "exp(X - max) / sum(exp(X - max))")
              .Apply(DeclareSoftmaxAttrs)
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return ForwardReference<T>(c, SoftmaxOnly<T>);
              })
              .Fast([](const PrepareContext& c) { return ForwardFast(c, SoftmaxOnlyRow); }));
  ops.Add(GradDef("softmax", "X@GRAD = Out (Out@GRAD - sum(Out@GRAD Out)) along axis.")
              .AttrsOf("softmax")
              .Gradient(SoftmaxGradGradient)
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return GradReference<T>(c, SoftmaxGradLine<T>);
              })
              .Fast([](const PrepareContext& c) { return GradFast(c, SoftmaxGradRow); }));
  RegisterLogSoftmax(ops);
}

}  // namespace coracle::softmax_op
