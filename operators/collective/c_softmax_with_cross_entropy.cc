// softmax_with_cross_entropy with classes that may be distributed over the ranks: rank r has D
// classes from r D on, D being the last dimension of its Logits. All ranks have the same labels and
// get the same loss. A single rank has all classes and uses the gradient
// of softmax_with_cross_entropy.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/loss/class_loss.h>
#include <coracle/operators/operators.h>

namespace coracle::c_softmax_with_cross_entropy_op {

void Infer(InferContext& ctx) {
  const VarMeta& logits = ctx.Input("Logits");
  const int rank = logits.shape.rank();
  ctx.Require("C1", rank >= 1, logits);
  const Shape loss = InferClassLoss(ctx, "C2", "Logits", "Label", rank - 1, false);
  ctx.SetOutput("Softmax", logits);
  ctx.SetOutput("Loss", logits.dtype, loss);
}

void InferGrad(InferContext& ctx) {
  const VarMeta &softmax = ctx.Input("Softmax"), &grad = ctx.Input("Loss@GRAD");
  const int rank = softmax.shape.rank();
  ctx.Require("C1", rank >= 1, softmax);
  const Shape loss = InferClassLoss(ctx, "C2", "Softmax", "Label", rank - 1, false);
  ctx.Require("C4", grad.dtype == softmax.dtype && grad.shape.CompatibleWith(loss), grad, softmax);
  ctx.SetOutput("Logits@GRAD", softmax);
}

// The labels. This rank has the classes [rank n, rank n + n).
class OwnLabels {
 public:
  OwnLabels(Workspace& ws, const TensorArg& label, int64_t n, const std::string& failure)
      : labels_(ws, label),
        begin_(RankOf(ws) * n),
        n_(n),
        all_(NumRanks(ws) * n),
        failure_(failure) {}
  // The index of a label among this rank's classes; -1 if another rank has it.
  int64_t operator[](int64_t line) const {
    const int64_t k = labels_[line];
    if (k < 0 || k >= all_) ThrowInvalid(failure_ + ", got " + std::to_string(k));
    return k < begin_ || k - begin_ >= n_ ? -1 : k - begin_;
  }

 private:
  IndexReader labels_;
  int64_t begin_, n_, all_;
  const std::string& failure_;
};

// Shared by the computations on one rank and on several.
struct Loss {
  TensorArg logits, label, softmax, loss;
  AxisView view;
  int32_t nranks;
  std::string failure, name;

  explicit Loss(const PrepareContext& ctx)
      : logits(ctx.Input("Logits")),
        label(ctx.Input("Label")),
        softmax(ctx.Output("Softmax")),
        loss(ctx.Output("Loss")),
        view(ViewAxis(logits.shape, -1)),
        nranks(ctx.Attr<int32_t>("nranks")),
        failure(ctx.Failure("C3")),
        name(ctx.op().Output("Loss")[0]) {}
};

template <class T>
void OnOneRank(const Loss& l, Workspace& ws) {
  const T* x = ws.Data<const T>(l.logits);
  T *y = ws.Data<T>(l.softmax), *out = ws.Data<T>(l.loss);
  const OwnLabels labels(ws, l.label, l.view.n, l.failure);
  if (l.view.n == 0) std::fill_n(out, l.loss.numel, T(0));
  ForEachLine(l.view, [&](int64_t line, int64_t at) {
    // Read first: Softmax may share the memory of Logits.
    const T picked = x[at + labels[line]];
    const LineStats<T> stats = SoftmaxLine(x + at, y + at, l.view.n, 1);
    out[line] = std::log(stats.sum) - (picked - stats.max);
  });
}

// Two exchanges: the maximum of each line, and its sum together with the logit of its label.
template <class T>
void AmongRanks(const Loss& l, const TensorArg& max_arg, const TensorArg& sum_arg, Workspace& ws) {
  const T* x = ws.Data<const T>(l.logits);
  T *y = ws.Data<T>(l.softmax), *out = ws.Data<T>(l.loss);
  T *max = ws.Data<T>(max_arg), *sum = ws.Data<T>(sum_arg), *picked = sum + l.loss.numel;
  const OwnLabels labels(ws, l.label, l.view.n, l.failure);
  const auto exchange = [&](T* data, int64_t count, Reduction reduction) {
    Exchange all{Exchange::Kind::kAllReduce, l.loss.dtype, {count}, data, data, reduction};
    all.name = l.name;
    ws.comm()->Run(all);
  };
  std::fill_n(max, l.loss.numel, -std::numeric_limits<T>::infinity());
  ForEachLine(l.view, [&](int64_t line, int64_t at) {
    for (int64_t i = 0; i < l.view.n; ++i) max[line] = std::max(max[line], x[at + i]);
  });
  exchange(max, l.loss.numel, Reduction::kMax);
  std::fill_n(sum, 2 * l.loss.numel, T(0));
  ForEachLine(l.view, [&](int64_t line, int64_t at) {
    const int64_t k = labels[line];
    if (k >= 0) picked[line] = x[at + k] - max[line];
    for (int64_t i = 0; i < l.view.n; ++i) sum[line] += y[at + i] = std::exp(x[at + i] - max[line]);
  });
  exchange(sum, 2 * l.loss.numel, Reduction::kSum);
  for (int64_t i = 0; i < l.loss.numel; ++i)
    out[i] = l.view.n == 0 ? T(0) : std::log(sum[i]) - picked[i];
  ForEachLine(l.view, [&](int64_t line, int64_t at) {
    for (int64_t i = 0; i < l.view.n; ++i) y[at + i] /= sum[line];
  });
}

template <class T>
KernelOf<T> Forward(const PrepareContext& ctx) {
  const Loss loss(ctx);
  const TensorArg max = ctx.Scratch(loss.loss.dtype, {loss.loss.numel});
  const TensorArg sum = ctx.Scratch(loss.loss.dtype, {2, loss.loss.numel});
  return [=](Workspace& ws) {
    RequireRanks(ws, loss.nranks, "c_softmax_with_cross_entropy");
    if (ws.comm())
      AmongRanks<T>(loss, max, sum, ws);
    else
      OnOneRank<T>(loss, ws);
  };
}

// dLogits = dLoss (Softmax - 1 at the label). All ranks have the same loss, so nothing
// is exchanged.
template <class T>
KernelOf<T> Backward(const PrepareContext& ctx) {
  const TensorArg softmax = ctx.Input("Softmax"), label = ctx.Input("Label");
  const TensorArg dloss = ctx.Input("Loss@GRAD"), dx = ctx.Output("Logits@GRAD");
  const AxisView view = ViewAxis(softmax.shape, -1);
  return [=, nranks = ctx.Attr<int32_t>("nranks"), failure = ctx.Failure("C3")](Workspace& ws) {
    RequireRanks(ws, nranks, "c_softmax_with_cross_entropy_grad");
    const T *y = ws.Data<const T>(softmax), *g = ws.Data<const T>(dloss);
    T* out = ws.Data<T>(dx);
    const OwnLabels labels(ws, label, view.n, failure);
    ForEachLine(view, [&](int64_t line, int64_t at) {
      const int64_t k = labels[line];
      for (int64_t i = 0; i < view.n; ++i) out[at + i] = g[line] * y[at + i];
      if (k >= 0) out[at + k] -= g[line];
    });
  };
}

// dx = y (dy - sum(dy y)); the sum runs over the classes of all ranks.
Variable SoftmaxGradient(GradientContext& g, const Variable& softmax, bool several) {
  if (!several) {
    return g.Make("softmax_grad",
                  {{"Out", {softmax.name()}}, {"Out@GRAD", {g.OutputGrad("Softmax")}}}, {},
                  "X@GRAD");
  }
  const Variable dy = g.Grad("Softmax");
  const Variable own = Sum(dy * softmax, {-1}, true);
  const Variable dot =
      g.Make("c_allreduce_sum", {{"X", {own.name()}}}, {{"ring_id", g.Attr<int32_t>("ring_id")}});
  return softmax * (dy - dot);
}

// Softmax, which the gradient of the loss reads, can also get a gradient itself.
void Gradient(GradientContext& g) {
  const Variable softmax = g.Out("Softmax");
  const bool several = g.Attr<int32_t>("nranks") > 1;
  std::vector<Variable> terms;
  if (g.HasOutputGrad("Loss") || !g.HasOutputGrad("Softmax")) {
    terms.push_back(g.Make(
        several ? "c_softmax_with_cross_entropy_grad" : "softmax_with_cross_entropy_grad",
        {{"Softmax", {softmax.name()}},
         {"Label", {g.Input("Label")}},
         {"Loss@GRAD", {g.OutputGrad("Loss")}}},
        several ? g.ForwardAttrs({"ring_id", "rank", "nranks"}) : AttrList(), "Logits@GRAD"));
  }
  if (g.HasOutputGrad("Softmax")) terms.push_back(SoftmaxGradient(g, softmax, several));
  g.Set("Logits", terms.size() > 1 ? AddAll(terms) : terms.front());
}

void DeclareAttrs(OpDef& def) {
  def.Attr<int32_t>("ring_id", 0, "accepted, no effect: all ranks take part")
      .Attr<int32_t>("rank", 0, "ignored: the number of the rank is known")
      .Attr<int32_t>("nranks", 0, "number of ranks that run the program; 0 means 1");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("c_softmax_with_cross_entropy")
          .ForRanks()
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Softmax = this rank's part of the softmax over the last axis of all ranks' Logits "
               "side by side; Loss = -log(softmax at the label's class), the same on all ranks.")
          .Constraint("C1", "Logits must have rank 1 or more")
          .Constraint("C2",
                      "Label must have Logits' shape with a last dimension of 1, and "
                      "dtype int32 or int64")
          .Constraint("C3", "every label must lie in [0, nranks times the classes of Logits)")
          .Input("Logits", "unnormalised log probabilities of the rank's classes")
          .Input("Label", "classes, the same on all ranks")
          .Output("Softmax", "tensor of Logits' shape")
          .Output("Loss", "tensor of Label's shape")
          .Apply(DeclareAttrs)
          .NoGradientTo({"Label"})
          .Inplace("Logits", "Softmax")
          .SideEffect()
          .Rows(RowRule::kEach)
          .Infer(Infer)
          .Gradient(Gradient)
          .Reference(Forward<float>, Forward<double>));
  ops.Add(OpDef("c_softmax_with_cross_entropy_grad")
              .ForRanks()
              .Doc("Gradient of c_softmax_with_cross_entropy: Logits@GRAD = Loss@GRAD (Softmax - 1 "
                   "at the label's class). All ranks have the same loss, so nothing is exchanged.")
              .ConstraintsOf("c_softmax_with_cross_entropy", {"C1", "C2", "C3"})
              .Constraint("C4", "Loss@GRAD must have the loss's shape and dtype")
              .Input("Softmax", "c_softmax_with_cross_entropy's Softmax")
              .Input("Label", "c_softmax_with_cross_entropy's Label")
              .Input("Loss@GRAD", "gradient of the loss")
              .Output("Logits@GRAD", "gradient of the logits")
              .AttrsOf("c_softmax_with_cross_entropy")
              .Inplace("Softmax", "Logits@GRAD")
              .Infer(InferGrad)
              .NoGradient("second derivatives of exchanges between ranks are not supported")
              .Reference(Backward<float>, Backward<double>));
}

}  // namespace coracle::c_softmax_with_cross_entropy_op
