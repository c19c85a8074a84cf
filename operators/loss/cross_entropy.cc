#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/loss/class_loss.h>
#include <coracle/operators/loss/loss_gradient.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>

namespace coracle::cross_entropy_op {

// The shape of the loss. If hard labels lack the last dim, so does the loss.
Shape InferLoss(InferContext& ctx, bool soft_label) {
  const Shape& x = ctx.InputShape("X");
  const int rank = x.rank();
  ctx.Require("C1", rank >= 2, rank);
  const VarMeta& label = ctx.Input("Label");
  if (!soft_label && label.shape.rank() == rank - 1) {
    Shape loss;
    for (int i = 0; i < rank - 1; ++i) loss.Append(x[i]);
    const bool dense = label.type == VarType::kLoDTensor && IsIndexType(label.dtype);
    ctx.Require("C2", dense && label.shape.CompatibleWith(loss), "Label", label, "X",
                ctx.Input("X"));
    return loss;
  }
  return InferClassLoss(ctx, "C2", "X", "Label", rank - 1, soft_label);
}
Shape InferLoss(InferContext& ctx) { return InferLoss(ctx, ctx.Attr<bool>("soft_label")); }

void InferCrossEntropy(InferContext& ctx) {
  const Shape loss = InferLoss(ctx);
  ctx.SetOutput("Y", ctx.InputDType("X"), loss);
}

void InferCrossEntropy2(InferContext& ctx) {
  const Shape loss = InferLoss(ctx, false);
  std::vector<int64_t> dims = ctx.InputShape("X").ToVector();
  dims.push_back(0);
  ctx.SetOutput("Y", ctx.InputDType("X"), loss);
  ctx.SetOutput("MatchX", ctx.InputDType("X"), loss);
  if (ctx.HasOutput("XShape"))
    ctx.SetOutput("XShape", ctx.InputDType("X"), ToShape(ctx, "C5", dims));
}

void InferCrossEntropyGrad(InferContext& ctx) {
  const Shape loss = InferLoss(ctx);
  const VarMeta& grad = ctx.Input("Y@GRAD");
  ctx.Require("C3", grad.dtype == ctx.InputDType("X") && grad.shape.CompatibleWith(loss), grad,
              "the loss", ctx.InputDType("X"), loss);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

// Paddle's bound: a probability of 0 costs 1e20 instead of infinity.
template <class T>
T BoundedLog(T x) {
  return x > T(0) ? std::log(x) : x == T(0) ? T(-1e20) : std::numeric_limits<T>::quiet_NaN();
}

struct Problem {
  TensorArg x, label;
  int64_t rows, classes, ignore_index;
  bool soft;
  std::string failure;  // for a label out of range
  Problem(const PrepareContext& ctx, bool soft_label)
      : x(ctx.Input("X")),
        label(ctx.Input("Label")),
        rows(x.shape.Product(0, x.shape.rank() - 1)),
        classes(x.shape[x.shape.rank() - 1]),
        ignore_index(ctx.Attr<int32_t>("ignore_index")),
        soft(soft_label),
        failure(ctx.Failure("C4")) {}
  explicit Problem(const PrepareContext& ctx) : Problem(ctx, ctx.Attr<bool>("soft_label")) {}

  // The class of a row, or -1 for an ignored one.
  int64_t ClassOf(const IndexReader& labels, int64_t row) const {
    const int64_t k = labels[row];
    if (k == ignore_index) return -1;
    if (k < 0 || k >= classes) ThrowLabel(failure, k, row, classes, ignore_index);
    return k;
  }
};

template <class T>
KernelOf<T> CrossEntropy(const PrepareContext& ctx) {
  const Problem p(ctx);
  const TensorArg y = ctx.Output("Y");
  return [=](Workspace& ws) {
    const T* x = ws.Data<const T>(p.x);
    T* out = ws.Data<T>(y);
    for (int64_t row = 0; row < p.rows; ++row, x += p.classes) {
      double loss = 0;
      if (p.soft) {
        const T* t = ws.Data<const T>(p.label) + row * p.classes;
        for (int64_t j = 0; j < p.classes; ++j) {
          if (t[j] != T(0))
            loss -= static_cast<double>(t[j]) * static_cast<double>(BoundedLog(x[j]));
        }
      } else {
        const int64_t k = p.ClassOf(IndexReader(ws, p.label), row);
        if (k >= 0) loss = -static_cast<double>(BoundedLog(x[k]));
      }
      out[row] = static_cast<T>(loss);
    }
  };
}

// MatchX = X at the label's class.
template <class T>
KernelOf<T> CrossEntropy2(const PrepareContext& ctx) {
  const Problem p(ctx, false);
  const TensorArg y = ctx.Output("Y"), match = ctx.Output("MatchX");
  return [=](Workspace& ws) {
    const IndexReader labels(ws, p.label);
    const T* x = ws.Data<const T>(p.x);
    T* out = ws.Data<T>(y);
    T* matched = match ? ws.Data<T>(match) : nullptr;
    for (int64_t row = 0; row < p.rows; ++row, x += p.classes) {
      const int64_t k = p.ClassOf(labels, row);
      out[row] = k < 0 ? T(0) : -BoundedLog(x[k]);
      if (matched) matched[row] = k < 0 ? T(0) : x[k];
    }
  };
}

// dX = -dY label / X; for a hard label, only at its class.
template <class T>
KernelOf<T> CrossEntropyGrad(const PrepareContext& ctx) {
  const Problem p(ctx);
  const TensorArg dy = ctx.Input("Y@GRAD"), dx = ctx.Output("X@GRAD");
  return [=](Workspace& ws) {
    const T* x = ws.Data<const T>(p.x);
    const T* g = ws.Data<const T>(dy);
    T* out = ws.Data<T>(dx);
    for (int64_t row = 0; row < p.rows; ++row, x += p.classes, out += p.classes) {
      if (p.soft) {
        const T* t = ws.Data<const T>(p.label) + row * p.classes;
        const double d = -static_cast<double>(g[row]);
        for (int64_t j = 0; j < p.classes; ++j) {
          const double slope = d * static_cast<double>(t[j]) / static_cast<double>(x[j]);
          out[j] = t[j] == T(0) ? T(0) : static_cast<T>(slope);
        }
      } else {
        const int64_t k = p.ClassOf(IndexReader(ws, p.label), row);
        std::fill(out, out + p.classes, T(0));
        if (k >= 0) out[k] = -g[row] / x[k];
      }
    }
  };
}

// dX = f(X) with f = -dY label / X, so d(dX)/dX = -f / X.
void CrossEntropyGradGradient(GradientContext& g) {
  SetLossGradGradient(g, "Y@GRAD", "X@GRAD", -1, true);
  const Variable f = g.Make("cross_entropy_grad", g.op().inputs(),
                            g.ForwardAttrs({"soft_label", "ignore_index"}), "X@GRAD");
  g.Set("X", -(g.Grad("X@GRAD") * (f / g.In("X"))));
}

void CrossEntropy2Gradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"X", "Label"});
  inputs.push_back({"Y@GRAD", {g.OutputGrad("Y")}});
  g.Set("X", g.Make("cross_entropy_grad", inputs, g.ForwardAttrs({"ignore_index"}), "X@GRAD"));
}

void DeclareAttrs(OpDef& def) {
  def.Attr<bool>("soft_label", false, "Label holds a probability for each class")
      .Attr<int32_t>("ignore_index", -100, "hard label without loss and gradient");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("cross_entropy")
          .ComputesIn(OpPrecision::kFloat32)
          .Apply(DeclareAttrs)
          .Doc("Y = -log(X at the label's class), or -sum(Label log(X)) with soft_label, along "
               "the last axis. log(0) counts as -1e20.")
          .Constraint("C1", "X must have rank 2 or more")
          .Constraint("C2",
                      "Label must have X's shape with a last dim of 1, or without its last dim, "
                      "and dtype int32 or int64; with soft_label X's shape and dtype")
          .Constraint("C4", "every hard label must be ignore_index or a class")
          .Input("X", "probabilities [.., classes]")
          .Input("Label", "classes [.., 1] or [..], or probabilities [.., classes]")
          .Output("Y", "loss [.., 1], or [..] if Label has that shape")
          .NoGradientTo({"Label"})
          .Rows(RowRule::kEach)
          .Scores({"X"})
          .SoftLabels({"Label"}, "soft_label")
          .Infer(InferCrossEntropy)
          .GradientOp({"X", "Label"})
          .Reference(CrossEntropy<float>, CrossEntropy<double>));
  ops.Add(OpDef("cross_entropy_grad")
              .AttrsOf("cross_entropy")
              .Doc("Gradient of cross_entropy: X@GRAD = -Y@GRAD Label / X; for a hard label, only "
                   "at its class.")
              .ConstraintsOf("cross_entropy", {"C1", "C2", "C4"})
              .Constraint("C3", "Y@GRAD must have the loss's shape and dtype")
              .Input("X", "cross_entropy's X")
              .Input("Label", "cross_entropy's Label")
              .Input("Y@GRAD", "gradient of cross_entropy's Y")
              .Output("X@GRAD", "gradient of cross_entropy's X")
              .NoGradientTo({"Label"})
              .Infer(InferCrossEntropyGrad)
              .Gradient(CrossEntropyGradGradient)
              .Reference(CrossEntropyGrad<float>, CrossEntropyGrad<double>));
  ops.Add(OpDef("cross_entropy2")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Y = -log(X at the label's class) along the last axis, as cross_entropy with "
                   "hard labels.")
              .ConstraintsOf("cross_entropy", {"C1", "C4"})
              .Constraint("C2",
                          "Label must have X's shape with a last dim of 1 and dtype int32 or "
                          "int64")
              .Constraint("C5", "the rank of XShape must be at most 9")
              .Input("X", "probabilities [.., classes]")
              .Input("Label", "classes [.., 1]")
              .Output("Y", "loss [.., 1]")
              .IntermediateOutput("XShape", "dims of X and 0, no elements")
              .IntermediateOutput("MatchX", "X at the label's class [.., 1]; 0 for ignored labels")
              .Attr<int32_t>("ignore_index", -100, "label without loss and gradient")
              .NoGradientTo({"Label"})
              .Rows(RowRule::kEach)
              .Scores({"X"})
              .Infer(InferCrossEntropy2)
              .Gradient(CrossEntropy2Gradient)
              .Reference(CrossEntropy2<float>, CrossEntropy2<double>));
}

}  // namespace coracle::cross_entropy_op
