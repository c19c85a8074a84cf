// batch_norm in training, fused with a following relu, or with a following sum and relu.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/norm/batch_norm.h>

#include <algorithm>
#include <string>
#include <utility>

namespace coracle::fused_batch_norm_act_op {

// --- shape rules ---

void InferFused(InferContext& ctx) {
  const int64_t channels = CheckBatchNormChannels(ctx, {"Scale", "Bias", "Mean", "Variance"});
  VarMeta y = ctx.Input("X");
  if (ctx.HasInput("Z")) {
    RequireSameDType(ctx, "C3", "Z", "X");
    y.shape = NormSumShape(ctx, "C4", "Z", ctx.InputShape("Z"));
  }
  ctx.SetOutput("Y", y);
  ctx.SetOutput("MeanOut", ctx.InputDType("Mean"), {channels});
  ctx.SetOutput("VarianceOut", ctx.InputDType("Variance"), {channels});
  ctx.SetOutput("SavedMean", StatisticsDType(ctx), {channels});
  ctx.SetOutput("SavedVariance", StatisticsDType(ctx), {channels});
  ctx.SetOutput("ReserveSpace", ctx.InputDType("X"), {0});
}

template <bool kSum>
void InferFusedGrad(InferContext& ctx) {
  CheckBatchNormChannels(ctx, {"Scale", "Bias", "SavedMean", "SavedVariance"});
  for (const char* slot : {"Y", "Y@GRAD"}) RequireSameDType(ctx, "C3", slot, "X");
  Shape sum = ctx.InputShape("X");
  if (kSum) {
    const char* slot = ctx.HasInput("Z") ? "Z" : "Y";
    sum = NormSumShape(ctx, "C4", slot, ctx.InputShape(slot));
  }
  for (const char* slot : {"Y", "Y@GRAD"}) {
    const Shape& shape = ctx.InputShape(slot);
    ctx.Require("C5", shape.CompatibleWith(sum), slot, shape, "wanted", sum);
  }
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  if (kSum) ctx.SetOutput("Z@GRAD", ctx.Input(ctx.HasInput("Z") ? "Z" : "Y"));
  ctx.SetOutput("Scale@GRAD", ctx.Input("Scale"));
  ctx.SetOutput("Bias@GRAD", ctx.Input("Scale"));
}

// --- kernels ---

template <class T>
KernelOf<T> FusedReference(const PrepareContext& ctx) {
  const BatchNormForward<T> f(ctx, false);
  const TensorArg z = ctx.Input("Z"), normed = ctx.Scratch(DTypeOf<T>(), f.x.shape);
  const BroadcastNest nest = MakeBroadcastNest(f.x.shape, z ? z.shape : f.x.shape, -1);
  return [=](Workspace& ws) {
    T* u = ws.Data<T>(normed);
    f.RunReference(ws, u);
    BroadcastLoop(nest, u, z ? ws.Data<const T>(z) : u, ws.Data<T>(f.y), [&](T v, T w) {
      const T sum = z ? v + w : v;
      return sum < 0 ? T(0) : sum;
    });
  };
}

template <class T>
KernelOf<T> FusedGradReference(const PrepareContext& ctx) {
  const BatchNormStatistics<T> stats(ctx, false);
  const NormGradSlots slots(ctx);
  const TensorArg y = ctx.Input("Y"), dz = ctx.Output("Z@GRAD");
  const BroadcastNest nest =
      MakeBroadcastNest(stats.x.shape, ctx.Input(ctx.HasInput("Z") ? "Z" : "Y").shape, -1);
  // The gradients of both operands of the sum: their sums in double, and the gradient of norm(X)
  // as T.
  const TensorArg sums = ctx.Scratch(DType::kFloat64, {stats.x.numel + (dz ? dz.numel : 0)});
  const TensorArg du = ctx.Scratch(DTypeOf<T>(), stats.x.shape);
  return [=](Workspace& ws) {
    const T *out = ws.Data<const T>(y), *dy = ws.Data<const T>(slots.dy);
    double *to_x = ws.Data<double>(sums), *to_z = to_x + stats.x.numel;
    std::fill_n(to_x, sums.numel, 0.0);
    const int64_t sx = nest.x_repeats() ? 0 : 1, sz = nest.y_repeats() ? 0 : 1;
    ForEachRow(nest, 0, nest.numel, [&](int64_t x, int64_t z, int64_t at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        if (out[at + i] <= 0) continue;
        to_x[x + i * sx] += static_cast<double>(dy[at + i]);
        if (dz) to_z[z + i * sz] += static_cast<double>(dy[at + i]);
      }
    });
    T* u = ws.Data<T>(du);
    for (int64_t i = 0; i < stats.x.numel; ++i) u[i] = static_cast<T>(to_x[i]);
    for (int64_t i = 0; dz && i < dz.numel; ++i) ws.Data<T>(dz)[i] = static_cast<T>(to_z[i]);
    RunBatchNormGrad<T>(ws, stats, u, slots);
  };
}

// --- gradient rule ---

bool SurelySameShape(const GradientContext& g, const std::string& a, const std::string& b) {
  const Shape &x = g.MetaOf(a).shape, &y = g.MetaOf(b).shape;
  return x.IsKnown() && x == y;
}

// Passes Z only if its shape may differ from X's.
void FusedGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"X", "Scale"});
  SlotList outputs = {{"X@GRAD", {g.InputGrad("X")}},
                      {"Scale@GRAD", {g.InputGrad("Scale")}},
                      {"Bias@GRAD", {g.InputGrad("Bias")}}};
  if (g.HasInput("Z")) {
    outputs.push_back({"Z@GRAD", {g.InputGrad("Z")}});
    if (!SurelySameShape(g, g.Input("X"), g.Input("Z"))) inputs.push_back({"Z", {g.Input("Z")}});
  }
  if (g.HasOutput("SavedMean") && g.HasOutput("SavedVariance")) {
    inputs.push_back({"SavedMean", {g.Output("SavedMean")}});
    inputs.push_back({"SavedVariance", {g.Output("SavedVariance")}});
  }
  inputs.push_back({"Y", {g.Output("Y")}});
  inputs.push_back({"Y@GRAD", {g.OutputGrad("Y")}});
  g.Append(g.op().type() + "_grad", std::move(inputs), std::move(outputs),
           g.ForwardAttrs({"epsilon", "momentum", "data_layout", "act_type"}));
}

// --- registration ---

void DeclareAttrs(OpDef& def) {
  def.Attr<float>("epsilon", 1e-5f, "added to the variance")
      .Range(0.0, std::nullopt)
      .Attr<float>("momentum", 0.9f, "share of the old running statistics")
      .Attr<std::string>("data_layout", "NHWC",
                         "channels are axis 1 (NCHW) or the last (NHWC); not in Paddle, whose op "
                         "has them last")
      .OneOf({"NCHW", "NHWC", "AnyLayout"})
      .Attr<std::string>("act_type", "relu", "the activation")
      .OneOf({"relu"});
}

constexpr const char* kSumFits = "X and Z must broadcast as in elementwise_add with axis -1";

RowEffect NormRows(const RowQuery& query) {
  const bool statistic = query.output == "MeanOut" || query.output == "VarianceOut";
  return statistic ? RowRule::kStatistic : RowRule::kEach;
}

OpDef ForwardDef(const std::string& type, bool add) {
  OpDef def(type);
  def.Doc(std::string(add ? "Y = relu(norm(X) + Z)" : "Y = relu(norm(X))") +
          ", where norm, MeanOut, VarianceOut, SavedMean and SavedVariance are computed as in "
          "batch_norm with the statistics of the batch." +
          (add ? " Z has X's shape, or is broadcast along dims of 1." : ""))
      .ConstraintsOf("batch_norm", {"C1", "C2", "C3"})
      .Input("X", "[N, C, ...], or [N, ..., C] for NHWC");
  if (add) def.Constraint("C4", kSumFits).Input("Z", "tensor like X, added to norm(X)");
  def.Input("Scale", "[C]")
      .Input("Bias", "[C]")
      .Input("Mean", "[C], running mean")
      .Input("Variance", "[C], running variance")
      .Output("Y", "tensor of the shape of X + Z")
      .Output("MeanOut", "[C], new running mean")
      .Output("VarianceOut", "[C], new running variance")
      .IntermediateOutput("SavedMean", "[C], mean of the batch")
      .IntermediateOutput("SavedVariance", "[C], 1 / sqrt(variance of the batch + epsilon)")
      .IntermediateOutput("ReserveSpace", "empty")
      .Apply(DeclareAttrs)
      .NoGradientTo({"Mean", "Variance"})
      .Inplace("X", "Y");
  if (add) def.Inplace("Z", "Y");
  def.Inplace("Mean", "MeanOut")
      .Inplace("Variance", "VarianceOut")
      .ImageLayout("data_layout", add ? std::vector<std::string>{"X", "Z", "Y"}
                                      : std::vector<std::string>{"X", "Y"})
      .Float32Slots({"Scale", "Bias", "Mean", "Variance", "MeanOut", "VarianceOut", "SavedMean",
                     "SavedVariance", "ReserveSpace"})
      .Rows(NormRows,
            "each by itself, given the batch's statistics; MeanOut and VarianceOut are running "
            "statistics")
      .Tables({"Bias"})
      .Infer(InferFused)
      .Gradient(FusedGradient)
      .Reference(FusedReference<float>, FusedReference<double>)
      .Fast([](const PrepareContext& c) { return BatchNormFast(c, false, true); });
  return def;
}

OpDef GradDef(const std::string& type, bool add) {
  OpDef def(type + "_grad");
  def.Doc("Gradient of " + type + ": the gradient of batch_norm for " +
          (add ? "Z@GRAD, which" : "an output gradient that") +
          " is 0 where Y <= 0 and Y@GRAD elsewhere.")
      .ConstraintsOf(type, {"C1", "C2", "C3"})
      .Constraint("C5", "Y and Y@GRAD must have the shape of Y in " + type)
      .Input("X", type + "'s X");
  if (add) {
    def.Constraint("C4", kSumFits)
        .OptionalInput("Z", type + "'s Z; only its shape is used, which is Y's if absent");
  }
  def.Input("Scale", type + "'s Scale")
      .OptionalInput("Bias", type + "'s Bias; used with mask_from_x")
      .OptionalInput("SavedMean", "mean of the batch; made again when absent")
      .OptionalInput("SavedVariance", "1 / sqrt(variance of the batch + epsilon)")
      .OptionalInput("ReserveSpace", "not used")
      .Input("Y", type + "'s Y")
      .Input("Y@GRAD", "gradient of Y")
      .OptionalOutput("X@GRAD", "gradient of X");
  if (add) def.OptionalOutput("Z@GRAD", "gradient of Z");
  def.OptionalOutput("Scale@GRAD", "gradient of Scale")
      .OptionalOutput("Bias@GRAD", "gradient of Bias")
      .Apply(DeclareAttrs)
      .Attr<bool>("mask_from_x", false,
                  "Y, Scale, Bias, SavedMean and SavedVariance come from one run of " + type +
                      ", so that Y's sign can be recomputed from X; not in Paddle")
      .NoGradient("second derivatives of " + type +
                  " are not provided: use batch_norm, elementwise_add and relu instead");
  if (add) def.Inplace("Y@GRAD", "Z@GRAD");
  def.Inplace("X", "X@GRAD");
  if (!add) def.Inplace("Y@GRAD", "X@GRAD");
  def.ImageLayout("data_layout",
                  add ? std::vector<std::string>{"X", "Z", "Y", "Y@GRAD", "X@GRAD", "Z@GRAD"}
                      : std::vector<std::string>{"X", "Y", "Y@GRAD", "X@GRAD"})
      .Infer(add ? InferFusedGrad<true> : InferFusedGrad<false>)
      .Reference(FusedGradReference<float>, FusedGradReference<double>)
      .Fast([add](const PrepareContext& c) {
        return BatchNormGradFast(c, false, true, !add && c.Attr<bool>("mask_from_x"));
      });
  return def;
}

void Register(OpRegistry& ops) {
  for (const bool add : {false, true}) {
    const std::string type = add ? "fused_bn_add_activation" : "fused_batch_norm_act";
    ops.Add(ForwardDef(type, add));
    ops.Add(GradDef(type, add));
  }
}

}  // namespace coracle::fused_batch_norm_act_op
