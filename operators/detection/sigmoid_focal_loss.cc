#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>

#include <cmath>
#include <limits>

namespace coracle::sigmoid_focal_loss_op {

void RequireLabels(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &label = ctx.Input("Label"), &fg = ctx.Input("FgNum");
  ctx.Require("C1", x.shape.rank() == 2, x);
  const Shape each{x.shape[0], 1};
  ctx.Require("C2", IsIndexType(label.dtype) && label.shape.CompatibleWith(each), label);
  const bool one = !fg.shape.IsKnown() || fg.shape.numel() == 1;
  ctx.Require("C3", IsIndexType(fg.dtype) && one, fg);
}

void InferLoss(InferContext& ctx) {
  RequireLabels(ctx);
  ctx.SetOutput("Out", ctx.Input("X"));
}

void InferLossGrad(InferContext& ctx) {
  RequireLabels(ctx);
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C4", dout.dtype == x.dtype && dout.shape.CompatibleWith(x.shape), dout, x);
  ctx.SetOutput("X@GRAD", x);
}

struct FocalLoss {
  TensorArg x, label, foreground;
  double gamma, alpha;

  explicit FocalLoss(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        label(ctx.Input("Label")),
        foreground(ctx.Input("FgNum")),
        gamma(ctx.Attr<float>("gamma")),
        alpha(ctx.Attr<float>("alpha")) {}

  // With q the probability of the right answer: -weight (1 - q)^gamma log q. `logit` is the logit
  // of q.
  double Value(double logit) const { return -Focus(logit) * LogOf(logit); }
  double Slope(double logit) const {
    return Focus(logit) * (gamma * Probability(logit) * LogOf(logit) - Probability(-logit));
  }

  // Calls set(element, derivative of the logit by X, weight).
  template <class T, class Set>
  void ForEach(Workspace& ws, const Set& set) const {
    const IndexReader labels(ws, label), number(ws, foreground);
    const double scale = 1 / static_cast<double>(std::max<int64_t>(number[0], 1));
    const int64_t classes = x.shape[1];
    ParallelFor(x.numel, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) {
        const int64_t wanted = labels[at / classes];
        const bool right = wanted == at % classes + 1;
        set(at, right ? 1.0 : -1.0, wanted == -1 ? 0 : scale * (right ? alpha : 1 - alpha));
      }
    });
  }

 private:
  static double Probability(double logit) { return activation::SigmoidOf(logit); }
  static double LogOf(double logit) { return -activation::LogOnePlusExp(-logit); }
  double Focus(double logit) const { return std::pow(Probability(-logit), gamma); }
};

template <class T>
KernelOf<T> Loss(const PrepareContext& ctx) {
  const FocalLoss loss(ctx);
  const TensorArg out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T* x = ws.Data<const T>(loss.x);
    T* to = ws.Data<T>(out);
    loss.ForEach<T>(ws, [&](int64_t at, double sign, double weight) {
      to[at] = weight == 0 ? T(0) : static_cast<T>(weight * loss.Value(sign * double{x[at]}));
    });
  };
}

template <class T>
KernelOf<T> LossGrad(const PrepareContext& ctx) {
  const FocalLoss loss(ctx);
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  return [=](Workspace& ws) {
    const T *x = ws.Data<const T>(loss.x), *g = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    loss.ForEach<T>(ws, [&](int64_t at, double sign, double weight) {
      const double slope = weight == 0 ? 0 : weight * sign * loss.Slope(sign * double{x[at]});
      to[at] = g[at] * static_cast<T>(slope);
    });
  };
}

void DeclareLabels(OpDef& def) {
  def.Input("X", "logits [N, C]")
      .Input("Label", "int32 or int64 tensor [N, 1]: 0 for no class, d + 1 for class d, -1 ignored")
      .Input("FgNum", "int32 or int64 tensor [1]: the number of samples with a class")
      .NoGradientTo({"Label", "FgNum"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("sigmoid_focal_loss")
          .Apply(DeclareLabels)
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("With p = sigmoid(X) and F = max(FgNum, 1): Out = -alpha / F (1 - p)^gamma log p "
               "for the class of the label, -(1 - alpha) / F p^gamma log(1 - p) for others, 0 "
               "where the label is -1. The logarithms are computed from X, so that they are finite "
               "for all finite X (Paddle takes them of p, limited to the smallest float).")
          .Constraint("C1", "X must be [N, C]")
          .Constraint("C2", "Label must be an int32 or int64 tensor [N, 1]")
          .Constraint("C3", "FgNum must be one int32 or int64 number")
          .Output("Out", "tensor of X's shape and dtype")
          .Attr<float>("gamma", 2.f, "exponent that lowers the weight of easy samples")
          .Range(0, {})
          .Attr<float>("alpha", 0.25f, "weight of the labels' classes")
          .Inplace("X", "Out")
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferLoss)
          .GradientOp({"X", "Label", "FgNum"})
          .Reference(Loss<float>, Loss<double>));
  ops.Add(OpDef("sigmoid_focal_loss_grad")
              .Apply(DeclareLabels)
              .Doc("Gradient of sigmoid_focal_loss. With q = p or 1 - p, the probability of the "
                   "right answer: X@GRAD = +-weight (1 - q)^gamma (gamma q log q - (1 - q)) "
                   "Out@GRAD.")
              .ConstraintsOf("sigmoid_focal_loss", {"C1", "C2", "C3"})
              .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("sigmoid_focal_loss")
              .NoGradient("second derivatives of the focal loss are not provided")
              .Infer(InferLossGrad)
              .Reference(LossGrad<float>, LossGrad<double>));
}

}  // namespace coracle::sigmoid_focal_loss_op
