#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <cmath>
#include <numeric>

namespace coracle::kldiv_loss_op {

void InferKldiv(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", out.shape.rank() >= 1, out.shape);
  RequireSameType(ctx, "C2", "Target", "X");
  if (ctx.Attr<std::string>("reduction") != "none") out.shape = {1};
  ctx.SetOutput("Loss", out);
}

// t log(t) -> 0 for t -> 0; a nan stays nan.
template <class T>
T Divergence(T x, T t) {
  return t <= T(0) ? T(0) : t * (std::log(t) - x);
}

template <class T>
KernelOf<T> Kldiv(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), target = ctx.Input("Target"), loss = ctx.Output("Loss");
  const std::string reduction = ctx.Attr<std::string>("reduction");
  const int64_t divisor = reduction == "mean" ? x.numel : reduction == "sum" ? 1 : x.shape[0];
  const bool reduce = reduction != "none";
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *t = ws.Data<const T>(target);
    T* out = ws.Data<T>(loss);
    double sum = 0;
    for (int64_t i = 0; i < x.numel; ++i) {
      const T value = Divergence(in[i], t[i]);
      sum += static_cast<double>(value);
      if (!reduce) out[i] = value;
    }
    if (reduce) out[0] = static_cast<T>(sum / static_cast<double>(divisor));
  };
}

// dX = -max(Target, 0) dLoss, divided by the number of elements (mean) or rows (batchmean): the
// gradient of the mean of a tensor with this many elements.
void KldivGradient(GradientContext& g) {
  const std::string reduction = g.Attr<std::string>("reduction");
  const auto share = [&](const Variable& like) {
    return g.Make("mean_grad", {{"X", {like.name()}}, {"Out@GRAD", {g.OutputGrad("Loss")}}}, {},
                  "X@GRAD");
  };
  const Variable x = g.In("X");
  Variable dloss = g.Grad("Loss");
  if (reduction == "mean") dloss = share(x);
  if (reduction == "batchmean") {
    std::vector<int32_t> dims(static_cast<size_t>(x.shape().rank()) - 1);
    std::iota(dims.begin(), dims.end(), 1);
    dloss = share(dims.empty() ? x : Sum(x, dims, true));
  }
  g.Set("X", -(Max(g.In("Target"), 0.0) * dloss));
}

// A batchmean divides by the first dimension, wherever the rows are.
RowEffect LossRows(const RowQuery& query) {
  const auto how = query.spec.AttrOf<std::string>(query.op, "reduction");
  if (how == "none") return RowRule::kEach;
  const bool mean = how == "mean" || (how == "batchmean" && query.axis == 0);
  return mean ? RowRule::kMean : RowRule::kSum;
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("kldiv_loss")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("The Kullback-Leibler divergence of the log probabilities X from the "
                   "probabilities Target: Target (log(Target) - X), 0 where Target is not "
                   "positive; element by element, or their sum (sum), their mean (mean), or their "
                   "sum divided by the number of rows (batchmean).")
              .Constraint("C1", "X must have rank 1 or more")
              .Constraint("C2", "Target must have X's shape and dtype")
              .Input("X", "floating-point tensor of log probabilities")
              .Input("Target", "probabilities, of X's shape and dtype")
              .Output("Loss", "tensor of X's shape; [1] with a reduction")
              .Attr<std::string>("reduction", "mean", "how the losses of the elements are reduced")
              .OneOf({"none", "mean", "batchmean", "sum"})
              .NoGradientTo({"Target"})
              .Rows(LossRows, "each by itself, or with a reduction their mean or sum")
              .SoftLabels({"Target"})
              .Infer(InferKldiv)
              .Gradient(KldivGradient)
              .Reference(Kldiv<float>, Kldiv<double>));
}

}  // namespace coracle::kldiv_loss_op
