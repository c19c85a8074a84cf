#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/loss/loss_gradient.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>

namespace coracle::sigmoid_cross_entropy_with_logits_op {

void InferForward(InferContext& ctx) {
  RequireSameType(ctx, "C1", "Label", "X");
  ctx.SetOutput("Out", ctx.Input("X"));
}

void InferGrad(InferContext& ctx) {
  RequireSameType(ctx, "C1", "Label", "X");
  RequireSameType(ctx, "C2", "Out@GRAD", "X");
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

// max(x, 0) - x z + log(1 + exp(-|x|)) equals -z log(s) - (1 - z) log(1 - s), without overflow.
template <class T>
T Loss(T x, T z) {
  return std::max(x, T(0)) - x * z + std::log1p(std::exp(-std::abs(x)));
}

struct Setup {
  TensorArg x, label;
  float ignore_index;
  bool normalize;
  explicit Setup(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        label(ctx.Input("Label")),
        ignore_index(static_cast<float>(ctx.Attr<int32_t>("ignore_index"))),
        normalize(ctx.Attr<bool>("normalize")) {}

  // 1; with `normalize`, one over the number of labels that are not ignored.
  template <class T>
  T Scale(const T* z) const {
    if (!normalize) return 1;
    int64_t count = 0;
    for (int64_t i = 0; i < x.numel; ++i) count += z[i] != static_cast<T>(ignore_index);
    return T(1) / std::max(static_cast<T>(count), T(1e-5));
  }
};

constexpr int64_t kGrain = 4096;

template <class T>
KernelOf<T> Forward(const PrepareContext& ctx) {
  const Setup s(ctx);
  const TensorArg out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T *x = ws.Data<const T>(s.x), *z = ws.Data<const T>(s.label);
    T* o = ws.Data<T>(out);
    const T scale = s.Scale(z), ignored = static_cast<T>(s.ignore_index);
    ParallelFor(s.x.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        o[i] = z[i] == ignored ? T(0) : Loss(x[i], z[i]) * scale;
      }
    });
  };
}

template <class T>
KernelOf<T> Backward(const PrepareContext& ctx) {
  const Setup s(ctx);
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  return [=](Workspace& ws) {
    const T *x = ws.Data<const T>(s.x), *z = ws.Data<const T>(s.label);
    const T* g = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    const T scale = s.Scale(z), ignored = static_cast<T>(s.ignore_index);
    ParallelFor(s.x.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        o[i] = z[i] == ignored ? T(0) : g[i] * (activation::SigmoidOf(x[i]) - z[i]) * scale;
      }
    });
  };
}

// dX = f(g, X) with f = g m (s(X) - z), where m is the mask divided by the number of labels. With u
// = d(dX), X' = u g m s (1 - s) = f(u g (1 - s), X) - f(u g (1 - s), -1e4), as s(-1e4) = 0.
void BackwardGradient(GradientContext& g) {
  SetLossGradGradient(g, "Out@GRAD", "X@GRAD", 0, false);
  const Variable x = g.In("X");
  const Variable weight = g.Grad("X@GRAD") * g.In("Out@GRAD") * Sigmoid(-x);
  const auto f = [&](const Variable& at) {
    return g.Make(
        g.op().type(),
        {{"X", {at.name()}}, {"Label", {g.Input("Label")}}, {"Out@GRAD", {weight.name()}}},
        g.ForwardAttrs({"ignore_index", "normalize"}), "X@GRAD");
  };
  const Variable at_x = f(x), at_low = f(FillLike(x, -1e4));
  g.Set("X", at_x - at_low);
}

void DeclareAttrs(OpDef& def) {
  def.Attr<bool>("normalize", false, "divide by the number of labels that are not ignored")
      .Attr<int32_t>("ignore_index", -100, "a label that makes no loss and no gradient");
}

RowEffect LossRows(const RowQuery& query) {
  return query.spec.AttrOf<bool>(query.op, "normalize") ? RowRule::kMixes : RowRule::kEach;
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sigmoid_cross_entropy_with_logits")
              .Apply(DeclareAttrs)
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = max(X, 0) - X Label + log(1 + exp(-|X|)), element by element: the cross "
                   "entropy of Label and sigmoid(X). 0 where Label is ignore_index.")
              .Constraint("C1", "Label must have X's shape and dtype")
              .Input("X", "logits of any shape")
              .Input("Label", "probabilities in [0, 1] of X's shape, or ignore_index")
              .Output("Out", "loss of X's shape")
              .NoGradientTo({"Label"})
              .Inplace("X", "Out")
              .Rows(LossRows, "each by itself; with normalize they share a count")
              .SoftLabels({"Label"})
              .Infer(InferForward)
              .GradientOp({"X", "Label"})
              .Reference(Forward<float>, Forward<double>));
  ops.Add(OpDef("sigmoid_cross_entropy_with_logits_grad")
              .AttrsOf("sigmoid_cross_entropy_with_logits")
              .Doc("Gradient of sigmoid_cross_entropy_with_logits: X@GRAD = Out@GRAD (sigmoid(X) - "
                   "Label), 0 where Label is ignore_index.")
              .Constraint("C1", "Label must have X's shape and dtype")
              .Constraint("C2", "Out@GRAD must have X's shape and dtype")
              .Input("X", "the logits")
              .Input("Label", "the labels")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .NoGradientTo({"Label"})
              .Inplace("Out@GRAD", "X@GRAD")
              .Infer(InferGrad)
              .Gradient(BackwardGradient)
              .Reference(Backward<float>, Backward<double>));
}

}  // namespace coracle::sigmoid_cross_entropy_with_logits_op
