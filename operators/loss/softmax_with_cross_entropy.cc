#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/loss/class_loss.h>
#include <coracle/operators/loss/loss_gradient.h>
#include <coracle/operators/operators.h>

namespace coracle {
namespace {

Shape InferLoss(InferContext& ctx, const char* scores) {
  const Shape& shape = ctx.InputShape(scores);
  ctx.Require("C1", shape.rank() >= 1, shape.rank());
  const int axis = ctx.Axis("C2", ctx.Attr<int32_t>("axis"), shape.rank());
  return InferClassLoss(ctx, "C3", scores, "Label", axis, ctx.Attr<bool>("soft_label"));
}

void InferForward(InferContext& ctx) {
  const Shape loss = InferLoss(ctx, "Logits");
  ctx.SetOutput("Softmax", ctx.Input("Logits"));
  ctx.SetOutput("Backprop", ctx.Input("Logits"));
  ctx.SetOutput("Loss", ctx.InputDType("Logits"), loss);
}

void InferGrad(InferContext& ctx) {
  const Shape loss = InferLoss(ctx, "Softmax");
  const VarMeta& grad = ctx.Input("Loss@GRAD");
  ctx.Require("C4", grad.dtype == ctx.InputDType("Softmax") && grad.shape.CompatibleWith(loss),
              grad, "the loss", ctx.InputDType("Softmax"), loss);
  ctx.SetOutput("Logits@GRAD", ctx.Input("Softmax"));
}

struct Setup {
  TensorArg scores, label;
  AxisView view;
  int64_t ignore_index;
  bool soft, use_softmax;
  std::string failure;  // for a label out of range
  Setup(const PrepareContext& ctx, const char* slot)
      : scores(ctx.Input(slot)),
        label(ctx.Input("Label")),
        view(ViewAxis(scores.shape, ctx.Attr<int32_t>("axis"))),
        ignore_index(ctx.Attr<int32_t>("ignore_index")),
        soft(ctx.Attr<bool>("soft_label")),
        use_softmax(ctx.Attr<bool>("use_softmax")),
        failure(ctx.Failure("C5")) {}

  // The class of a line, or -1 for an ignored one.
  int64_t ClassOf(const IndexReader& labels, int64_t line) const {
    const int64_t k = labels[line];
    if (k == ignore_index) return -1;
    if (k < 0 || k >= view.n) ThrowLabel(failure, k, line, view.n, ignore_index);
    return k;
  }
};

// A line of softmax: the vector kernel where there is one.
template <class T>
LineStats<T> RunSoftmax(const T* x, T* y, const AxisView& view, KernelMode mode) {
  if constexpr (std::is_same_v<T, float>) {
    if (mode == KernelMode::kAuto && view.inner == 1) return SoftmaxRow(x, y, view.n);
  }
  return SoftmaxLine(x, y, view.n, view.inner);
}

// -sum(t log(softmax)) = sum(t) log(sum) - sum(t (x - max)): the part that needs the logits.
template <class T>
struct SoftTarget {
  T total = 0, dot = 0;
  SoftTarget(const T* x, const T* t, int64_t n, int64_t stride) {
    T max = -std::numeric_limits<T>::infinity();
    for (int64_t i = 0; i < n * stride; i += stride) max = std::max(max, x[i]);
    for (int64_t i = 0; i < n * stride; i += stride) {
      total += t[i];
      if (t[i] != T(0)) dot += t[i] * (x[i] - max);
    }
  }
};

// use_softmax = false: the input holds probabilities already.
template <class T>
T ProbabilityLoss(const T* p, const T* t, int64_t k, int64_t n, int64_t stride) {
  if (!t) return k < 0 ? T(0) : -std::log(p[k * stride]);
  T loss = 0;
  for (int64_t i = 0; i < n * stride; i += stride) {
    if (t[i] != T(0)) loss -= t[i] * std::log(p[i]);
  }
  return loss;
}

template <class T>
T LineLoss(const Setup& s, const T* x, const T* t, int64_t k, T* y, KernelMode mode) {
  const int64_t n = s.view.n, stride = s.view.inner;
  if (!s.use_softmax) {
    const T loss = ProbabilityLoss(x, t, k, n, stride);
    for (int64_t i = 0; i < n * stride; i += stride) y[i] = x[i];
    return loss;
  }
  // Softmax may be the memory of Logits, so what the loss needs of the logits comes out first.
  if (t) {
    const SoftTarget<T> target(x, t, n, stride);
    return target.total * std::log(RunSoftmax(x, y, s.view, mode).sum) - target.dot;
  }
  const T picked = k < 0 ? T(0) : x[k * stride];
  const LineStats<T> stats = RunSoftmax(x, y, s.view, mode);
  return k < 0 ? T(0) : std::log(stats.sum) - (picked - stats.max);
}

template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Forward(const PrepareContext& ctx) {
  const Setup s(ctx, "Logits");
  const TensorArg loss = ctx.Output("Loss"), backprop = ctx.Output("Backprop");
  TensorArg softmax = ctx.Output("Softmax");
  if (!softmax) softmax = ctx.Scratch(s.scores.dtype, s.scores.shape);
  return [=](Workspace& ws) {
    const T* x = ws.Data<const T>(s.scores);
    T* y = ws.Data<T>(softmax);
    T* out = ws.Data<T>(loss);
    const T* t = s.soft ? ws.Data<const T>(s.label) : nullptr;
    const IndexReader labels(ws, s.label);
    if (backprop) std::fill_n(ws.Data<T>(backprop), backprop.numel, T(0));
    if (s.view.n == 0) std::fill_n(out, loss.numel, T(0));
    ForEachLine(s.view, [&](int64_t line, int64_t at) {
      const int64_t k = t ? 0 : s.ClassOf(labels, line);
      out[line] = LineLoss(s, x + at, t ? t + at : nullptr, k, y + at, mode);
    });
  };
}

// Hard: dLogits = dLoss (Softmax - 1 at the label). Soft: dLoss (Softmax sum(t) - t).
template <class T>
void LogitsGradLine(const T* y, const T* t, int64_t k, T g, T* dx, int64_t n, int64_t stride) {
  T total = 1;
  if (t) {
    total = 0;
    for (int64_t i = 0; i < n * stride; i += stride) total += t[i];
    for (int64_t i = 0; i < n * stride; i += stride) dx[i] = g * (y[i] * total - t[i]);
    return;
  }
  if (k < 0) g = 0;
  for (int64_t i = 0; i < n * stride; i += stride) dx[i] = k < 0 ? T(0) : g * y[i];
  if (k >= 0) dx[k * stride] -= g;
}

// use_softmax = false: dX = -dLoss t / X.
template <class T>
void ProbabilityGradLine(const T* y, const T* t, int64_t k, T g, T* dx, int64_t n, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = i * stride;
    const T target = t ? t[at] : i == k ? T(1) : T(0);
    dx[at] = target == T(0) ? T(0) : -g * target / y[at];
  }
}

template <class T>
KernelOf<T> Backward(const PrepareContext& ctx) {
  const Setup s(ctx, "Softmax");
  const TensorArg dloss = ctx.Input("Loss@GRAD"), dx = ctx.Output("Logits@GRAD");
  const auto grad_line = s.use_softmax ? LogitsGradLine<T> : ProbabilityGradLine<T>;
  return [=](Workspace& ws) {
    const T* y = ws.Data<const T>(s.scores);
    const T* g = ws.Data<const T>(dloss);
    T* out = ws.Data<T>(dx);
    const T* t = s.soft ? ws.Data<const T>(s.label) : nullptr;
    const IndexReader labels(ws, s.label);
    ForEachLine(s.view, [&](int64_t line, int64_t at) {
      const int64_t k = t ? 0 : s.ClassOf(labels, line);
      grad_line(y + at, t ? t + at : nullptr, k, g[line], out + at, s.view.n, s.view.inner);
    });
  };
}

AttrList AttrsOf(GradientContext& g) {
  return g.ForwardAttrs({"soft_label", "use_softmax", "ignore_index", "axis"});
}

// A gradient may arrive at Softmax too: from a second use of it, or from the gradient op, which
// reads it, when that is differentiated.
void ForwardGradient(GradientContext& g) {
  const bool use_softmax = g.Attr<bool>("use_softmax"), has_softmax = g.HasOutput("Softmax");
  const AttrList axis = g.ForwardAttrs({"axis"});
  Variable softmax = has_softmax ? g.Out("Softmax") : g.In("Logits");
  if (use_softmax && !has_softmax) {
    softmax = g.Named("softmax", g.Make("softmax", {{"X", {softmax.name()}}}, axis));
  }
  std::vector<Variable> terms;
  const bool from_softmax = has_softmax && g.HasOutputGrad("Softmax");
  if (g.HasOutputGrad("Loss") || !from_softmax) {
    terms.push_back(g.Make("softmax_with_cross_entropy_grad",
                           {{"Softmax", {softmax.name()}},
                            {"Label", {g.Input("Label")}},
                            {"Loss@GRAD", {g.OutputGrad("Loss")}}},
                           AttrsOf(g), "Logits@GRAD"));
  }
  if (from_softmax && use_softmax) {
    terms.push_back(g.Make("softmax_grad",
                           {{"Out", {softmax.name()}}, {"Out@GRAD", {g.OutputGrad("Softmax")}}},
                           axis, "X@GRAD"));
  } else if (from_softmax) {
    terms.push_back(g.Grad("Softmax"));
  }
  g.Set("Logits", terms.size() > 1 ? AddAll(terms) : terms.front());
}

// With u = d(dLogits). use_softmax: dLogits = f(Softmax) is affine in Softmax, so Softmax' = f(u) -
// f(0). Otherwise f = -dLoss t / X, and X' = -u f / X.
void BackwardGradient(GradientContext& g) {
  SetLossGradGradient(g, "Loss@GRAD", "Logits@GRAD", g.Attr<int32_t>("axis"), true);
  const Variable u = g.Grad("Logits@GRAD"), y = g.In("Softmax");
  const auto f = [&](const Variable& at) {
    return g.Make(g.op().type(),
                  {{"Softmax", {at.name()}},
                   {"Label", {g.Input("Label")}},
                   {"Loss@GRAD", {g.Input("Loss@GRAD")}}},
                  AttrsOf(g), "Logits@GRAD");
  };
  if (g.Attr<bool>("use_softmax")) {
    const Variable at_u = f(u), at_zero = f(ZerosLike(u));
    g.Set("Softmax", at_u - at_zero);
  } else {
    g.Set("Softmax", -(u * (f(y) / y)));
  }
}

void DeclareAttrs(OpDef& def) {
  def.Attr<bool>("soft_label", false, "Label holds a probability for each class")
      .Attr<bool>("use_softmax", true, "false: Logits holds probabilities already")
      .Attr<bool>("numeric_stable_mode", true, "taken from files; the computation is always stable")
      .Attr<int32_t>("ignore_index", -100, "a hard label that makes no loss and no gradient")
      .Attr<int32_t>("axis", -1, "the axis of the classes, counted from the end if < 0");
}

OpDef ForwardDef() {
  return OpDef("softmax_with_cross_entropy")
      .Apply(DeclareAttrs)
      .ComputesIn(OpPrecision::kFloat32)
      .Doc(
          "Softmax = softmax(Logits) along axis; Loss = -log(Softmax at the label's class), or "
          "-sum(Label log(Softmax)) with soft_label.")
      .Constraint("C1", "Logits must have rank 1 or more")
      .Constraint("C2", "axis must lie in [-rank, rank)")
      .Constraint("C3",
                  "Label must have Logits' shape with size 1 along axis and dtype int32 or int64; "
                  "with soft_label Logits' shape and dtype")
      .Constraint("C5", "every hard label must be ignore_index or a class")
      .Input("Logits", "unnormalised log probabilities")
      .Input("Label", "classes, size 1 along axis, or probabilities of Logits' shape")
      .OptionalOutput("Softmax", "tensor of Logits' shape")
      .Output("Loss", "tensor of Logits' shape with size 1 along axis")
      .IntermediateOutput("Backprop", "taken from files for other devices; zeros")
      .NoGradientTo({"Label"})
      .Inplace("Logits", "Softmax");
}

}  // namespace

void RegisterSoftmaxWithCrossEntropy(OpRegistry& ops) {
  ops.Add(ForwardDef()
              .Infer(InferForward)
              .Gradient(ForwardGradient)
              .Reference(Forward<float>, Forward<double>)
              .Fast([](const PrepareContext& c) {
                const bool takes = c.Input("Logits").dtype == DType::kFloat32;
                return takes ? Kernel(Forward<float, KernelMode::kAuto>(c)) : Kernel();
              }));
  ops.Add(OpDef("softmax_with_cross_entropy_grad")
              .AttrsOf("softmax_with_cross_entropy")
              .Doc("Gradient of softmax_with_cross_entropy: Logits@GRAD = Loss@GRAD (Softmax - t), "
                   "t being 1 at a hard label's class (or Softmax sum(Label) - Label); 0 where the "
                   "label is ignored.")
              .ConstraintsOf("softmax_with_cross_entropy", {"C1", "C2", "C3", "C5"})
              .Constraint("C4", "Loss@GRAD must have the loss's shape and dtype")
              .Input("Softmax", "softmax_with_cross_entropy's Softmax")
              .Input("Label", "softmax_with_cross_entropy's Label")
              .Input("Loss@GRAD", "gradient of the loss")
              .Output("Logits@GRAD", "gradient of the logits")
              .NoGradientTo({"Label"})
              .Inplace("Softmax", "Logits@GRAD")
              .Infer(InferGrad)
              .Gradient(BackwardGradient)
              .Reference(Backward<float>, Backward<double>));
}

}  // namespace coracle
