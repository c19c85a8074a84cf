#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/loss/class_loss.h>
#include <coracle/operators/operators.h>

namespace coracle::bpr_loss_op {

void InferBprLoss(InferContext& ctx) {
  VarMeta y = ctx.Input("X");
  const int rank = y.shape.rank();
  ctx.Require("C1", rank >= 2, rank);
  const int64_t classes = y.shape[rank - 1];
  ctx.Require("C2", classes < 0 || classes >= 2, classes);
  y.shape = InferClassLoss(ctx, "C3", "X", "Label", rank - 1, false);
  ctx.SetOutput("Y", y);
}

template <class T>
KernelOf<T> BprLoss(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), label = ctx.Input("Label"), y = ctx.Output("Y");
  const int64_t classes = x.shape[x.shape.rank() - 1];
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader labels(ws, label);
    const T* in = ws.Data<const T>(x);
    T* out = ws.Data<T>(y);
    ParallelFor(y.numel, 1 + 8192 / classes, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t k = labels[i];
        if (k < 0 || k >= classes) ThrowIndexRange(name, "Label", i, k, classes);
        const T* row = in + i * classes;
        double sum = 0;
        for (int64_t j = 0; j < classes; ++j) {
          if (j == k) continue;
          sum +=
              activation::LogOnePlusExp(static_cast<double>(row[j]) - static_cast<double>(row[k]));
        }
        out[i] = static_cast<T>(sum / static_cast<double>(classes - 1));
      }
    });
  };
}

// With s_j = sigmoid(X_j - X_y) / (C - 1) for j other than y, and e_y the unit vector of the label:
//   dX = dY (s - e_y sum(s)).
void BprLossGradient(GradientContext& g) {
  const Variable x = g.In("X");
  const auto classes = static_cast<int32_t>(x.shape()[x.shape().rank() - 1]);
  if (classes < 0)
    throw Error(ErrorCode::kUnimplemented,
                "bpr_loss: its gradient needs a known number of classes");
  const Variable unit = g.Make("one_hot", {{"X", {g.Input("Label")}}},
                               {{"depth", classes}, {"dtype", static_cast<int32_t>(x.dtype())}});
  // Not a product with `unit`, since the score of another class may be -inf.
  const Variable only = Where(Greater(unit, 0.0), x, ZerosLike(x));
  const Variable picked = Sum(only, {-1}, true);
  const Variable others = (1.0 - unit) / static_cast<double>(classes - 1);
  const Variable s = Sigmoid(x - picked) * others;
  const Variable total = Sum(s, {-1}, true);
  g.Set("X", g.Grad("Y") * (s - unit * total));
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("bpr_loss")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Bayesian personalised ranking: Y = the mean of log(1 + exp(X_j - X_y)) over the "
               "classes j other than the label y, along the last dim. A label outside of [0, "
               "classes) is an error.")
          .Constraint("C1", "X must have rank 2 or more")
          .Constraint("C2", "X must have two classes or more")
          .Constraint("C3",
                      "Label must have X's shape with a last dim of 1, and dtype int32 or "
                      "int64")
          .Input("X", "floating-point tensor of scores [.., classes]")
          .Input("Label", "the classes that were chosen [.., 1]")
          .Output("Y", "loss [.., 1]")
          .NoGradientTo({"Label"})
          .Rows(RowRule::kEach)
          .Scores({"X"})
          .Infer(InferBprLoss)
          .Gradient(BprLossGradient)
          .Reference(BprLoss<float>, BprLoss<double>));
}

}  // namespace coracle::bpr_loss_op
