#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/loss/labels.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::nll_loss_op {

// The shape of Out.
Shape InferNll(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() >= 2, x.shape);
  std::vector<int64_t> dims = x.shape.ToVector();
  dims.erase(dims.begin() + 1);
  const VarMeta& label = ctx.Input("Label");
  ctx.Require("C2", IsIndexType(label.dtype) && label.shape.CompatibleWith(Shape(dims)), "Label",
              label, "X", x);
  if (ctx.HasInput("Weight")) {
    const VarMeta& weight = ctx.Input("Weight");
    ctx.Require("C3", weight.dtype == x.dtype && weight.shape.CompatibleWith({x.shape[1]}),
                "Weight", weight, "X", x);
  }
  return ctx.Attr<std::string>("reduction") == "none" ? Shape(dims) : Shape{1};
}

void InferForward(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  out.shape = InferNll(ctx);
  ctx.SetOutput("Out", out);
  ctx.SetOutput("Total_weight", out.dtype, {1});
}

void InferGrad(InferContext& ctx) {
  const Shape out = InferNll(ctx);
  const VarMeta& grad = ctx.Input("Out@GRAD");
  ctx.Require("C5", grad.dtype == ctx.InputDType("X") && grad.shape.CompatibleWith(out), grad,
              "the loss", out);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

// The labels with their positions in X [N, C, rest] and their weights.
struct Labels {
  TensorArg label, weight;
  int64_t classes, rest, ignore_index;
  bool reduce, mean;
  std::string failure;
  explicit Labels(const PrepareContext& ctx)
      : label(ctx.Input("Label")),
        weight(ctx.Input("Weight")),
        classes(ctx.Input("X").shape[1]),
        rest(ctx.Input("X").shape.Product(2, ctx.Input("X").shape.rank())),
        ignore_index(ctx.Attr<int64_t>("ignore_index")),
        reduce(ctx.Attr<std::string>("reduction") != "none"),
        mean(ctx.Attr<std::string>("reduction") == "mean"),
        failure(ctx.Failure("C4")) {}

  // Calls visit(i, position, weight) for each label i that is not ignored.
  template <class T, class Visit>
  void ForEach(Workspace& ws, const Visit& visit) const {
    const IndexReader labels(ws, label);
    const T* w = weight ? ws.Data<const T>(weight) : nullptr;
    for (int64_t i = 0; i < label.numel; ++i) {
      const int64_t k = labels[i];
      if (k == ignore_index) continue;
      if (k < 0 || k >= classes) ThrowLabel(failure, k, i, classes, ignore_index);
      visit(i, (i / rest * classes + k) * rest + i % rest, w ? w[k] : T(1));
    }
  }

  // The divisor of the sum of the losses.
  static double Divisor(double total, bool mean) { return mean && total != 0 ? total : 1; }
};

template <class T>
KernelOf<T> Forward(const PrepareContext& ctx) {
  const Labels labels(ctx);
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), total = ctx.Output("Total_weight");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    std::fill_n(o, out.numel, T(0));
    double sum = 0, weights = 0;
    labels.ForEach<T>(ws, [&](int64_t i, int64_t place, T w) {
      const double loss = -static_cast<double>(w) * static_cast<double>(in[place]);
      sum += loss;
      weights += static_cast<double>(w);
      if (!labels.reduce) o[i] = static_cast<T>(loss);
    });
    if (labels.reduce) o[0] = static_cast<T>(sum / Labels::Divisor(weights, labels.mean));
    if (total) ws.Data<T>(total)[0] = labels.reduce ? static_cast<T>(weights) : T(0);
  };
}

// dX = -w dOut at the label, divided like the loss.
template <class T>
KernelOf<T> Backward(const PrepareContext& ctx) {
  const Labels labels(ctx);
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  return [=](Workspace& ws) {
    const T* g = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    std::fill_n(o, dx.numel, T(0));
    double weights = 0;
    if (labels.mean)
      labels.ForEach<T>(ws, [&](int64_t, int64_t, T w) { weights += static_cast<double>(w); });
    const double divisor = Labels::Divisor(weights, labels.mean);
    labels.ForEach<T>(ws, [&](int64_t i, int64_t place, T w) {
      const auto arrives = static_cast<double>(g[labels.reduce ? 0 : i]);
      o[place] = static_cast<T>(-static_cast<double>(w) * arrives / divisor);
    });
  };
}

void ForwardGradient(GradientContext& g) {
  g.HasOutputGrad("Total_weight");  // does not depend on X
  SlotList inputs = g.ForwardInputs({"X", "Label", "Weight"});
  inputs.push_back({"Out@GRAD", {g.OutputGrad("Out")}});
  g.Set("X",
        g.Make("nll_loss_grad", inputs, g.ForwardAttrs({"ignore_index", "reduction"}), "X@GRAD"));
}

// The loss is linear in X.
void BackwardGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"Label", "Weight"});
  inputs.push_back({"X", {g.OutputGrad("X@GRAD")}});
  g.Set("Out@GRAD", g.Make("nll_loss", inputs, g.ForwardAttrs({"ignore_index", "reduction"})));
}

void DeclareInputs(OpDef& def) {
  def.Input("X", "log probabilities [N, C, ...] of C classes")
      .Input("Label", "int32 or int64 tensor of classes [N, ...]")
      .OptionalInput("Weight", "weights of the classes [C]; 1 when absent")
      .NoGradientTo({"Label", "Weight"});
}

RowEffect LossRows(const RowQuery& query) {
  if (query.axis == 1) return RowRule::kMixes;  // the classes
  const auto how = query.spec.AttrOf<std::string>(query.op, "reduction");
  if (query.output == "Total_weight" || how == "sum") return RowRule::kSum;
  if (how == "none") return RowRule::kEach;
  if (!query.op.HasOutput("Total_weight")) return RowRule::kMixes;
  return {RowRule::kMean, "Total_weight"};
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("nll_loss")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("The negative log likelihood -Weight[Label] X[n, Label, ...] of each label, 0 for "
               "ignored ones; with reduction sum their sum, and with mean this sum divided by the "
               "sum of the labels' weights, unless that is 0.")
          .Constraint("C1", "X must have rank 2 or more")
          .Constraint("C2",
                      "Label must be int32 or int64 and must have X's shape without the classes")
          .Constraint("C3", "Weight must have X's dtype and an element for each class")
          .Constraint("C4", "every label must be ignore_index or a class")
          .Apply(DeclareInputs)
          .Output("Out", "losses of Label's shape; [1] with a reduction")
          .OptionalOutput(
              "Total_weight",
              "sum of the weights of the labels that are not ignored [1]; 0 without a reduction")
          .Attr<int64_t>("ignore_index", -100, "a label that makes no loss and no gradient")
          .Attr<std::string>("reduction", "mean", "how the losses of the labels are reduced")
          .OneOf({"none", "mean", "sum"})
          .Rows(LossRows,
                "each by itself, or their sum, or with reduction mean a mean by Total_weight, "
                "which must then be an output")
          .Scores({"X"})
          .Infer(InferForward)
          .Gradient(ForwardGradient)
          .Reference(Forward<float>, Forward<double>));
  ops.Add(OpDef("nll_loss_grad")
              .Doc("Gradient of nll_loss: -Weight[Label] Out@GRAD at the label's place, divided as "
                   "the loss; elsewhere 0.")
              .ConstraintsOf("nll_loss", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have the loss's shape and dtype")
              .Apply(DeclareInputs)
              .OptionalInput("Total_weight", "not read: the weights are summed again")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("nll_loss")
              .NoGradientTo({"X", "Total_weight"})
              .Infer(InferGrad)
              .Gradient(BackwardGradient)
              .Reference(Backward<float>, Backward<double>));
}

}  // namespace coracle::nll_loss_op
