#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>

namespace coracle::center_loss_op {

void InferCenterLoss(InferContext& ctx) {
  const VarMeta x = ctx.Input("X"), centers = ctx.Input("Centers");
  ctx.Require("C1", x.shape.rank() == 2, x.shape);
  const VarMeta& label = ctx.Input("Label");
  const int rank = label.shape.rank();
  const bool column = rank == 1 || (rank == 2 && InferContext::Matches(label.shape[1], 1));
  ctx.Require(
      "C2", IsIndexType(label.dtype) && column && InferContext::Matches(label.shape[0], x.shape[0]),
      "Label", label, "X", x);
  const int64_t clusters = ctx.Attr<int32_t>("cluster_num");
  const bool matrix = centers.shape.rank() == 2 && clusters >= 0;
  ctx.Require("C3",
              matrix && centers.dtype == x.dtype &&
                  InferContext::Matches(centers.shape[0], clusters) &&
                  InferContext::Matches(centers.shape[1], x.shape[1]),
              "Centers", centers, "cluster_num", clusters, "X", x);
  const VarMeta& rate = ctx.Input("CenterUpdateRate");
  ctx.Require("C4", rate.dtype == x.dtype && InferContext::Matches(NumelOf(rate.shape), 1), rate);
  VarMeta loss = x;
  loss.shape[1] = 1;
  ctx.SetOutput("Loss", loss);
  ctx.SetOutput("SampleCenterDiff", x);
  ctx.SetOutput("CentersOut", centers);
}

// Centers[c] + rate / (1 + n_c) * the sum of Diff over the n_c samples of class c.
template <class T>
void MoveCenters(const IndexReader& labels, const T* diff, int64_t samples, int64_t width, T rate,
                 int64_t* counts, double* sums, int64_t clusters, T* centers) {
  std::fill_n(counts, clusters, int64_t{0});
  std::fill_n(sums, clusters * width, 0.0);
  for (int64_t i = 0; i < samples; ++i) {
    ++counts[labels[i]];
    double* sum = sums + labels[i] * width;
    for (int64_t j = 0; j < width; ++j) sum[j] += static_cast<double>(diff[i * width + j]);
  }
  for (int64_t c = 0; c < clusters; ++c) {
    if (counts[c] == 0) continue;
    const double step = static_cast<double>(rate) / static_cast<double>(1 + counts[c]);
    for (int64_t j = 0; j < width; ++j) {
      T& center = centers[c * width + j];
      center = static_cast<T>(static_cast<double>(center) + step * sums[c * width + j]);
    }
  }
}

template <class T>
KernelOf<T> CenterLoss(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), label = ctx.Input("Label"), centers = ctx.Input("Centers");
  const TensorArg rate = ctx.Input("CenterUpdateRate"), loss = ctx.Output("Loss");
  const TensorArg centers_out = ctx.Output("CentersOut");
  TensorArg diff = ctx.Output("SampleCenterDiff");
  if (!diff) diff = ctx.Scratch(x.dtype, x.shape);
  const int64_t samples = x.shape[0], width = x.shape[1], clusters = centers.shape[0];
  const bool move = ctx.Attr<bool>("need_update") && centers_out;
  TensorArg counts, sums;
  if (move) {
    counts = ctx.Scratch(DType::kInt64, {clusters});
    sums = ctx.Scratch(DType::kFloat64, centers.shape);
  }
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader labels(ws, label);
    const T *in = ws.Data<const T>(x), *center = ws.Data<const T>(centers);
    T *d = ws.Data<T>(diff), *out = ws.Data<T>(loss);
    for (int64_t i = 0; i < samples; ++i) {
      const int64_t c = labels[i];
      if (c < 0 || c >= clusters) ThrowIndexRange(name, "Label", i, c, clusters);
      double sum = 0;
      for (int64_t j = 0; j < width; ++j) {
        d[i * width + j] = in[i * width + j] - center[c * width + j];
        const auto value = static_cast<double>(d[i * width + j]);
        sum += value * value;
      }
      out[i] = static_cast<T>(sum / 2);
    }
    if (!centers_out) return;
    T* moved = ws.Data<T>(centers_out);
    if (moved != center) std::copy_n(center, centers.numel, moved);
    if (move) {
      MoveCenters(labels, d, samples, width, ws.Data<const T>(rate)[0], ws.Data<int64_t>(counts),
                  ws.Data<double>(sums), clusters, moved);
    }
  };
}

// dX = dLoss Diff plus the gradient of Diff itself; the centers are updated here, not learned.
void CenterLossGradient(GradientContext& g) {
  g.HasOutputGrad("CentersOut");  // treated as constant
  if (!g.HasOutput("SampleCenterDiff")) {
    const Variable centers = g.Make(
        "gather", {{"X", {g.Input("Centers")}}, {"Index", {g.Input("Label")}}}, {{"axis", 0}});
    return g.Set("X", g.Grad("Loss") * (g.In("X") - centers));
  }
  const Variable dx = g.Grad("Loss") * g.Out("SampleCenterDiff");
  g.Set("X", g.HasOutputGrad("SampleCenterDiff") ? dx + g.Grad("SampleCenterDiff") : dx);
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("center_loss")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("With the center of each sample's class: SampleCenterDiff = X - Centers[Label], "
               "Loss = half the sum of its squares. CentersOut = Centers; with need_update each "
               "center c plus CenterUpdateRate / (1 + n) times the sum of SampleCenterDiff over "
               "the n samples of class c. A label outside of [0, cluster_num) is an error.")
          .Constraint("C1", "X must be a matrix")
          .Constraint("C2", "Label must hold an int32 or int64 for each row of X: [N] or [N, 1]")
          .Constraint("C3", "Centers must be [cluster_num, D] of X's dtype")
          .Constraint("C4", "CenterUpdateRate must hold one element of X's dtype")
          .Input("X", "features of the samples [N, D]")
          .Input("Label", "their classes [N, 1] or [N]")
          .Input("Centers", "centers of the classes [cluster_num, D]")
          .Input("CenterUpdateRate", "tensor [1]")
          .OptionalOutput("CentersOut", "usually Centers itself")
          .OptionalOutput("SampleCenterDiff", "tensor [N, D]")
          .Output("Loss", "tensor [N, 1]")
          .Attr<int32_t>("cluster_num", "number of classes")
          .Attr<bool>("need_update", "move the centers towards the samples")
          .NoGradientTo({"Label", "Centers", "CenterUpdateRate"})
          .Inplace("Centers", "CentersOut")
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferCenterLoss)
          .Gradient(CenterLossGradient)
          .Reference(CenterLoss<float>, CenterLoss<double>));
}

}  // namespace coracle::center_loss_op
