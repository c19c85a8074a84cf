#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/loss/class_loss.h>
#include <coracle/operators/loss/loss_gradient.h>
#include <coracle/operators/operators.h>

#include <string>
#include <string_view>

namespace coracle::softmax_with_cross_entropy_op {

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

void InferFused(InferContext& ctx) {
  const Shape loss = InferLoss(ctx, "Logits");
  const VarMeta &logits = ctx.Input("Logits"), &grad = ctx.Input("Mean@GRAD");
  ctx.Require("C4",
              grad.dtype == logits.dtype && (!grad.shape.IsKnown() || grad.shape.numel() == 1),
              grad, logits.dtype);
  ctx.SetOutput("Loss", logits.dtype, loss);
  ctx.SetOutput("Logits@GRAD", logits);
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
        failure(ctx.Failure("C5")) {
    // The message must begin with the type of the op in the program.
    constexpr std::string_view kFused = "fused_";
    if (failure.starts_with(kFused)) failure.erase(0, kFused.size());
  }

  // The class of a line, or -1 for an ignored one.
  int64_t ClassOf(const IndexReader& labels, int64_t line) const {
    const int64_t k = labels[line];
    if (k == ignore_index) return -1;
    if (k < 0 || k >= view.n) ThrowLabel(failure, k, line, view.n, ignore_index);
    return k;
  }
};

// The softmax of a line, stored in y unless it is null; uses the vector kernel if there is one.
template <class T>
LineStats<T> RunSoftmax(const T* x, T* y, const AxisView& view, KernelMode mode) {
  if constexpr (std::is_same_v<T, float>) {
    if (mode == KernelMode::kAuto && view.inner == 1)
      return y ? SoftmaxRow(x, y, view.n) : ExpSumRow(x, view.n);
  }
  return y ? SoftmaxLine(x, y, view.n, view.inner) : ExpSumLine(x, view.n, view.inner);
}

// -sum(t log(softmax)) = sum(t) log(sum) - sum(t (x - max)): the part that reads the logits. Sums
// over targets are in double: products and partial sums may leave the range of a float.
struct SoftTarget {
  double total = 0, dot = 0;
  template <class T>
  SoftTarget(const T* x, const T* t, int64_t n, int64_t stride) {
    T max = -std::numeric_limits<T>::infinity();
    for (int64_t i = 0; i < n * stride; i += stride) max = std::max(max, x[i]);
    for (int64_t i = 0; i < n * stride; i += stride) {
      const double target = static_cast<double>(t[i]);
      total += target;
      if (target != 0) dot += target * (static_cast<double>(x[i]) - static_cast<double>(max));
    }
  }
};

// use_softmax = false: the input already holds probabilities.
template <class T>
T ProbabilityLoss(const T* p, const T* t, int64_t k, int64_t n, int64_t stride) {
  if (!t) return k < 0 ? T(0) : -std::log(p[k * stride]);
  double loss = 0;
  for (int64_t i = 0; i < n * stride; i += stride) {
    if (t[i] != T(0)) loss -= static_cast<double>(t[i]) * std::log(static_cast<double>(p[i]));
  }
  return static_cast<T>(loss);
}

template <class T>
T LineLoss(const Setup& s, const T* x, const T* t, int64_t k, T* y, KernelMode mode) {
  const int64_t n = s.view.n, stride = s.view.inner;
  if (!s.use_softmax) {
    const T loss = ProbabilityLoss(x, t, k, n, stride);
    for (int64_t i = 0; y && i < n * stride; i += stride) y[i] = x[i];
    return loss;
  }
  // Softmax may share the memory of Logits, so the loss reads the logits first.
  if (t) {
    const SoftTarget target(x, t, n, stride);
    const auto sum = static_cast<double>(RunSoftmax(x, y, s.view, mode).sum);
    return static_cast<T>(target.total * std::log(sum) - target.dot);
  }
  const T picked = k < 0 ? T(0) : x[k * stride];
  const LineStats<T> stats = RunSoftmax(x, y, s.view, mode);
  return k < 0 ? T(0) : std::log(stats.sum) - (picked - stats.max);
}

template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Forward(const PrepareContext& ctx) {
  const Setup s(ctx, "Logits");
  const TensorArg loss = ctx.Output("Loss"), backprop = ctx.Output("Backprop");
  const TensorArg softmax = ctx.Output("Softmax");
  return [=](Workspace& ws) {
    const T* x = ws.Data<const T>(s.scores);
    T* y = softmax ? ws.Data<T>(softmax) : nullptr;
    T* out = ws.Data<T>(loss);
    const T* t = s.soft ? ws.Data<const T>(s.label) : nullptr;
    const IndexReader labels(ws, s.label);
    if (backprop) std::fill_n(ws.Data<T>(backprop), backprop.numel, T(0));
    if (s.view.n == 0) std::fill_n(out, loss.numel, T(0));
    ForEachLine(s.view, [&](int64_t line, int64_t at) {
      const int64_t k = t ? 0 : s.ClassOf(labels, line);
      out[line] = LineLoss(s, x + at, t ? t + at : nullptr, k, y ? y + at : nullptr, mode);
    });
  };
}

// Hard: dLogits = dLoss (Softmax - 1 at the label). Soft: dLoss (Softmax sum(t) - t).
template <class T>
void LogitsGradLine(const T* y, const T* t, int64_t k, T g, T* dx, int64_t n, int64_t stride) {
  if (t) {
    const auto wide = [](T value) { return static_cast<double>(value); };
    double total = 0;
    for (int64_t i = 0; i < n * stride; i += stride) total += wide(t[i]);
    for (int64_t i = 0; i < n * stride; i += stride)
      dx[i] = static_cast<T>(wide(g) * (wide(y[i]) * total - wide(t[i])));
    return;
  }
  for (int64_t i = 0; i < n * stride; i += stride) dx[i] = k < 0 ? T(0) : g * y[i];
  if (k >= 0) dx[k * stride] -= g;
}
// Like LogitsGradLine, for a hard label on a contiguous line, with the machine's
// vector instructions.
void LogitsGradRow(const float* y, const float*, int64_t k, float g, float* dx, int64_t n,
                   int64_t) {
  static const simd::UnaryLoop scale = simd::FindUnary(simd::Unary::kScale);
  if (k < 0) {
    std::fill_n(dx, n, 0.0f);
  } else {
    scale(y, dx, n, {g, 0, 0});
    dx[k] -= g;
  }
}

// use_softmax = false: dX = -dLoss t / X.
template <class T>
void ProbabilityGradLine(const T* y, const T* t, int64_t k, T g, T* dx, int64_t n, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = i * stride;
    const T target = t ? t[at] : i == k ? T(1) : T(0);
    const double slope = -static_cast<double>(g) * static_cast<double>(target);
    dx[at] = target == T(0) ? T(0) : static_cast<T>(slope / static_cast<double>(y[at]));
  }
}

template <class T>
using GradLine = void (*)(const T* y, const T* t, int64_t k, T g, T* dx, int64_t n, int64_t stride);
template <class T>
GradLine<T> GradLineOf(const Setup& s, KernelMode mode) {
  if (!s.use_softmax) return ProbabilityGradLine<T>;
  if constexpr (std::is_same_v<T, float>) {
    if (mode == KernelMode::kAuto && !s.soft && s.view.inner == 1) return LogitsGradRow;
  }
  return LogitsGradLine<T>;
}

template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Backward(const PrepareContext& ctx) {
  const Setup s(ctx, "Softmax");
  const TensorArg dloss = ctx.Input("Loss@GRAD"), dx = ctx.Output("Logits@GRAD");
  const GradLine<T> grad_line = GradLineOf<T>(s, mode);
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

// Computes loss and gradient of a line together: the softmax is written to the memory of the
// gradient, which may be the memory of the logits.
template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Fused(const PrepareContext& ctx) {
  const Setup s(ctx, "Logits");
  const TensorArg mean_grad = ctx.Input("Mean@GRAD");
  const TensorArg loss = ctx.Output("Loss"), dx = ctx.Output("Logits@GRAD");
  const GradLine<T> grad_line = GradLineOf<T>(s, mode);
  return [=](Workspace& ws) {
    const T* x = ws.Data<const T>(s.scores);
    const T* t = s.soft ? ws.Data<const T>(s.label) : nullptr;
    T *out = ws.Data<T>(loss), *d = ws.Data<T>(dx);
    const T g = ws.Data<const T>(mean_grad)[0] / static_cast<T>(loss.numel);
    const IndexReader labels(ws, s.label);
    if (s.view.n == 0) std::fill_n(out, loss.numel, T(0));
    ForEachLine(s.view, [&](int64_t line, int64_t at) {
      const int64_t k = t ? 0 : s.ClassOf(labels, line);
      const T* target = t ? t + at : nullptr;
      out[line] = LineLoss(s, x + at, target, k, d + at, mode);
      grad_line(d + at, target, k, g, d + at, s.view.n, s.view.inner);
    });
  };
}

// The loss, and the gradient if `dx` is given, for hard labels and contiguous lines in one sweep
// over memory: a line stays in the cache, and the next one is prefetched.
Kernel HardLines(const Setup& s, const TensorArg& loss, const TensorArg& mean_grad,
                 const TensorArg& dx) {
  constexpr int64_t kLarge = int64_t{8} << 20;  // number of elements that do not stay in the caches
  const int64_t n = s.view.n, grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, n));
  return [=](Workspace& ws) {
    const float* x = ws.Data<const float>(s.scores);
    float *out = ws.Data<float>(loss), *d = dx ? ws.Data<float>(dx) : nullptr;
    const float g = dx ? ws.Data<const float>(mean_grad)[0] / static_cast<float>(loss.numel) : 0.0f;
    const bool stream = d != x && s.scores.numel >= kLarge;
    const IndexReader labels(ws, s.label);
    if (n == 0) return void(std::fill_n(out, loss.numel, 0.0f));
    ParallelFor(s.view.lines(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const float* row = x + line * n;
        const float* next = line + 1 < end ? row + n : nullptr;
        const int64_t k = s.ClassOf(labels, line);
        LineStats<float> stats = {0, 1};
        const float picked = k < 0 ? 0 : row[k];
        if (k >= 0 && d) {
          stats = CrossEntropyRow(row, d + line * n, n, k, g, stream, next);
        } else if (k >= 0) {
          stats = ExpSumRow(row, n, next);
        } else if (d) {
          std::fill_n(d + line * n, n, 0.0f);
        }
        out[line] = std::log(stats.sum) - (picked - stats.max);
      }
      if (stream) FinishStreams();
    });
  };
}
bool HasHardLines(const Setup& s) { return !s.soft && s.use_softmax && s.view.inner == 1; }

Kernel FusedFast(const PrepareContext& ctx) {
  const Setup s(ctx, "Logits");
  if (s.scores.dtype != DType::kFloat32) return {};
  if (!HasHardLines(s)) return Fused<float, KernelMode::kAuto>(ctx);
  return HardLines(s, ctx.Output("Loss"), ctx.Input("Mean@GRAD"), ctx.Output("Logits@GRAD"));
}
Kernel ForwardFast(const PrepareContext& ctx) {
  const Setup s(ctx, "Logits");
  if (s.scores.dtype != DType::kFloat32) return {};
  const bool loss_alone = !ctx.HasOutput("Softmax") && !ctx.HasOutput("Backprop");
  if (!HasHardLines(s) || !loss_alone) return Forward<float, KernelMode::kAuto>(ctx);
  return HardLines(s, ctx.Output("Loss"), {}, {});
}

AttrList AttrsOf(GradientContext& g) {
  return g.ForwardAttrs({"soft_label", "use_softmax", "ignore_index", "axis"});
}

// Softmax can get a gradient too: from another op that uses it, or from the gradient op, which
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
      .Attr<bool>("use_softmax", true, "false: Logits already holds probabilities")
      .Attr<bool>("numeric_stable_mode", true,
                  "accepted from files; the computation is always stable")
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
      .IntermediateOutput("Backprop", "accepted from files for other devices; zeros")
      .NoGradientTo({"Label"})
      .WorksAlong("axis")
      .Scores({"Logits", "Softmax"})
      .SoftLabels({"Label"}, "soft_label")
      .Inplace("Logits", "Softmax");
}

void Register(OpRegistry& ops) {
  ops.Add(ForwardDef()
              .Rows(RowRule::kEach)
              .Infer(InferForward)
              .Gradient(ForwardGradient)
              .Reference(Forward<float>, Forward<double>)
              .Fast(ForwardFast));
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
              .Reference(Backward<float>, Backward<double>)
              .Fast([](const PrepareContext& c) {
                const bool takes = c.Input("Softmax").dtype == DType::kFloat32;
                return takes ? Kernel(Backward<float, KernelMode::kAuto>(c)) : Kernel();
              }));
  ops.Add(OpDef("fused_softmax_with_cross_entropy")
              .AttrsOf("softmax_with_cross_entropy")
              .Doc("Computes the Loss of softmax_with_cross_entropy together with the gradient of "
                   "the logits, given the gradient Mean@GRAD of the mean of the loss. The softmax "
                   "is never stored.")
              .ConstraintsOf("softmax_with_cross_entropy", {"C1", "C2", "C3", "C5"})
              .Constraint("C4", "Mean@GRAD must hold one element and have Logits' dtype")
              .Input("Logits", "unnormalised log probabilities")
              .Input("Label", "classes, size 1 along axis, or probabilities of Logits' shape")
              .Input("Mean@GRAD", "gradient of the mean of Loss, [1]")
              .Output("Loss", "tensor of Logits' shape with size 1 along axis")
              .Output("Logits@GRAD", "gradient of the logits")
              .NoGradient("it is made from a program that already has its gradients")
              .Inplace("Logits", "Logits@GRAD")
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Scores({"Logits"})
              .SoftLabels({"Label"}, "soft_label")
              .Infer(InferFused)
              .Reference(Fused<float>, Fused<double>)
              .Fast(FusedFast));
}

}  // namespace coracle::softmax_with_cross_entropy_op
