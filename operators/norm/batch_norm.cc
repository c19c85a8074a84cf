#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/operators/norm/batch_norm.h>

#include <algorithm>
#include <utility>

namespace coracle::inline internal {

int64_t CheckBatchNormChannels(const InferContext& ctx, std::initializer_list<const char*> slots) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() >= 2 && x.rank() <= 5, x.rank());
  int64_t channels = x[BatchNormChannelAxis(ctx, x.rank())];
  for (const char* slot : slots) {
    if (!ctx.HasInput(slot)) continue;
    const Shape& shape = ctx.InputShape(slot);
    ctx.Require("C2", shape.rank() == 1 && InferContext::Matches(shape[0], channels), slot, shape,
                "channels", channels);
    if (channels < 0) channels = shape[0];
    RequireNormDType(ctx, slot);
  }
  return channels;
}

NormView BatchNormView(const PrepareContext& ctx, const Shape& x) {
  const int axis = BatchNormChannelAxis(ctx, x.rank());
  return ChannelView(x[0], x[axis], axis == 1 ? x.Product(2, x.rank()) : x.Product(1, axis),
                     axis != 1);
}

}  // namespace coracle::inline internal

namespace coracle::batch_norm_op {

// Whether the statistics are Mean and Variance instead of those of the batch.
template <class Context>
bool FixedStatistics(const Context& ctx) {
  return ctx.template Attr<bool>("use_global_stats") ||
         (ctx.template Attr<bool>("is_test") && !ctx.template Attr<bool>("trainable_statistics"));
}

// --- shape rules ---

void InferBatchNorm(InferContext& ctx) {
  const int64_t channels = CheckBatchNormChannels(ctx, {"Scale", "Bias", "Mean", "Variance"});
  if (ctx.HasInput("MomentumTensor")) {
    const Shape& momentum = ctx.InputShape("MomentumTensor");
    ctx.Require("C4", !momentum.IsKnown() || momentum.numel() == 1, momentum);
    RequireNormDType(ctx, "MomentumTensor");
  }
  const DType made = StatisticsDType(ctx);
  ctx.SetOutput("Y", ctx.Input("X"));
  ctx.SetOutput("MeanOut", ctx.InputDType("Mean"), {channels});
  ctx.SetOutput("VarianceOut", ctx.InputDType("Variance"), {channels});
  ctx.SetOutput("SavedMean", made, {channels});
  ctx.SetOutput("SavedVariance", made, {channels});
  ctx.SetOutput("ReserveSpace", ctx.InputDType("X"), {0});
}

void CheckShare(const InferContext& ctx) {
  if (!ctx.HasInput("Share")) return;
  const VarMeta& share = ctx.Input("Share");
  ctx.Require("C7", (!share.shape.IsKnown() || share.shape.numel() == 1) && IsFloating(share.dtype),
              share);
}
void InferSyncBatchNorm(InferContext& ctx) {
  InferBatchNorm(ctx);
  CheckShare(ctx);
}

void CheckGrad(const InferContext& ctx) {
  CheckBatchNormChannels(ctx, {"Scale", "Mean", "Variance", "SavedMean", "SavedVariance",
                               "Scale@GRAD@GRAD", "Bias@GRAD@GRAD"});
  for (const char* slot : {"Y@GRAD", "X@GRAD@GRAD"}) RequireLikeX(ctx, "C5", slot);
  const bool mean = ctx.HasInput("Mean"), variance = ctx.HasInput("Variance");
  ctx.Require("C6", !FixedStatistics(ctx) || (mean && variance), "Mean", mean, "Variance",
              variance);
}

void InferBatchNormGrad(InferContext& ctx) {
  CheckGrad(ctx);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Scale@GRAD", ctx.Input("Scale"));
  ctx.SetOutput("Bias@GRAD", ctx.Input("Scale"));
}

void InferSyncBatchNormGrad(InferContext& ctx) {
  InferBatchNormGrad(ctx);
  CheckShare(ctx);
}

void InferBatchNormGradGrad(InferContext& ctx) {
  CheckGrad(ctx);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Scale@GRAD", ctx.Input("Scale"));
  ctx.SetOutput("Y@GRAD@GRAD", ctx.Input("X"));
}

// --- kernels ---

// With fixed statistics, ranks do not exchange anything.
bool IsSync(const PrepareContext& ctx) {
  return ctx.op().type().starts_with("sync_") && !FixedStatistics(ctx);
}

template <class T>
KernelOf<T> BatchNormReference(const PrepareContext& ctx) {
  if (IsSync(ctx)) return SyncBatchNorm<T>(ctx);
  const BatchNormForward<T> f(ctx, FixedStatistics(ctx));
  return [f](Workspace& ws) { f.RunReference(ws, ws.Data<T>(f.y)); };
}

template <class T>
KernelOf<T> BatchNormGradReference(const PrepareContext& ctx) {
  if (IsSync(ctx)) return SyncBatchNormGrad<T>(ctx);
  const BatchNormStatistics<T> stats(ctx, FixedStatistics(ctx));
  const NormGradSlots slots(ctx);
  return [=](Workspace& ws) { RunBatchNormGrad(ws, stats, ws.Data<const T>(slots.dy), slots); };
}

template <class T>
void FillZeros(Workspace& ws, const TensorArg& arg) {
  if (arg) std::fill_n(ws.Data<T>(arg), arg.numel, T(0));
}

template <class T>
void CopyOrZero(Workspace& ws, const TensorArg& from, const TensorArg& to) {
  if (!to) return;
  if (!from) return FillZeros<T>(ws, to);
  std::copy_n(ws.Data<const T>(from), from.numel, ws.Data<T>(to));
}

template <class T>
KernelOf<T> BatchNormGradGradReference(const PrepareContext& ctx) {
  const BatchNormStatistics<T> stats(ctx, FixedStatistics(ctx));
  const TensorArg scale = ctx.Input("Scale"), dy = ctx.Input("Y@GRAD");
  const TensorArg ddx = ctx.Input("X@GRAD@GRAD"), ddscale = ctx.Input("Scale@GRAD@GRAD");
  const TensorArg ddbias = ctx.Input("Bias@GRAD@GRAD");
  const TensorArg x_out = ctx.Output("X@GRAD"), scale_out = ctx.Output("Scale@GRAD");
  const TensorArg dy_out = ctx.Output("Y@GRAD@GRAD");
  const bool of_one_rank = IsSync(ctx);
  if (IsIdentityNorm(stats.view, stats.fixed)) {
    return [=](Workspace& ws) {
      if (of_one_rank) RequireRanks(ws, 1, "sync_batch_norm_grad_grad");
      CopyOrZero<T>(ws, ddx, dy_out);
      FillZeros<T>(ws, x_out);
      FillZeros<T>(ws, scale_out);
    };
  }
  return [=](Workspace& ws) {
    if (of_one_rank) RequireRanks(ws, 1, "sync_batch_norm_grad_grad");
    const double* s = stats.Read(ws);
    NormGradGradArgs<T> a;
    a.x = ws.Data<const T>(stats.x);
    a.scale = ws.Data<const T>(scale);
    a.dy = ws.Data<const T>(dy);
    a.ddx = DataOrNull<const T>(ws, ddx);
    a.ddscale = DataOrNull<const T>(ws, ddscale);
    a.ddbias = DataOrNull<const T>(ws, ddbias);
    a.mean = s;
    a.inv = s + stats.view.groups;
    a.fixed = stats.fixed;
    a.x_out = DataOrNull<T>(ws, x_out);
    a.scale_out = DataOrNull<T>(ws, scale_out);
    a.dy_out = DataOrNull<T>(ws, dy_out);
    NormGradGrad(stats.view, a);
  };
}

// --- gradient rules ---

AttrList NormAttrs(const GradientContext& g) {
  return g.ForwardAttrs(
      {"epsilon", "data_layout", "is_test", "use_global_stats", "trainable_statistics"});
}

// Passes Mean and Variance only if the statistics are fixed, since training overwrites them.
void BatchNormGradient(GradientContext& g) {
  const bool fixed = FixedStatistics(g);
  SlotList inputs =
      fixed ? g.ForwardInputs({"X", "Scale", "Mean", "Variance"}) : g.ForwardInputs({"X", "Scale"});
  if (!fixed && g.HasOutput("SavedMean") && g.HasOutput("SavedVariance")) {
    inputs.push_back({"SavedMean", {g.Output("SavedMean")}});
    inputs.push_back({"SavedVariance", {g.Output("SavedVariance")}});
  }
  inputs.push_back({"Y@GRAD", {g.OutputGrad("Y")}});
  if (g.HasInput("Share")) inputs.push_back({"Share", {g.Input("Share")}});
  g.Append(g.op().type() + "_grad", inputs,
           {{"X@GRAD", {g.InputGrad("X")}},
            {"Scale@GRAD", {g.InputGrad("Scale")}},
            {"Bias@GRAD", {g.InputGrad("Bias")}}},
           NormAttrs(g));
}

void BatchNormGradGradient(GradientContext& g) {
  SlotList inputs =
      g.ForwardInputs({"X", "Scale", "Mean", "Variance", "SavedMean", "SavedVariance", "Y@GRAD"});
  for (const char* slot : {"X@GRAD", "Scale@GRAD", "Bias@GRAD"}) {
    if (g.HasOutputGrad(slot)) inputs.push_back({GradName(slot), {g.OutputGrad(slot)}});
  }
  g.Append(g.op().type() + "_grad", inputs,
           {{"X@GRAD", {g.InputGrad("X")}},
            {"Scale@GRAD", {g.InputGrad("Scale")}},
            {"Y@GRAD@GRAD", {g.InputGrad("Y@GRAD")}}},
           NormAttrs(g));
}

// --- registration ---

void DeclareNormAttrs(OpDef& def) {
  def.Attr<float>("epsilon", 1e-5f, "added to the variance")
      .Range(0.0, std::nullopt)
      .Attr<std::string>("data_layout", "NCHW", "channels are axis 1 (NCHW) or the last (NHWC)")
      .OneOf({"NCHW", "NHWC", "AnyLayout"})
      .Attr<bool>("is_test", false, "use Mean and Variance (unless trainable_statistics)")
      .Attr<bool>("use_global_stats", false, "use Mean and Variance in training too")
      .Attr<bool>("trainable_statistics", false, "use the batch's statistics in a test too");
}

void DeclareGradInputs(OpDef& def) {
  def.Input("X", "batch_norm's X")
      .Input("Scale", "batch_norm's Scale")
      .OptionalInput("Mean", "Mean of batch_norm; read with global statistics")
      .OptionalInput("Variance", "Variance of batch_norm; read with global statistics")
      .OptionalInput("SavedMean", "mean of the batch; recomputed if absent")
      .OptionalInput("SavedVariance", "1 / sqrt(variance of the batch + epsilon)")
      .Input("Y@GRAD", "gradient of Y");
}

void DeclareConstraints(OpDef& def, const std::string& type) {
  if (type != "batch_norm") return void(def.ConstraintsOf("batch_norm", {"C1", "C2", "C3", "C4"}));
  def.Constraint("C1", "X must have rank 2 to 5")
      .Constraint("C2", "Scale, Bias, Mean and Variance must have shape [channels]")
      .Constraint("C3",
                  "all inputs must have X's dtype; scale, bias and statistics may be float32 with "
                  "a 16-bit X")
      .Constraint("C4", "MomentumTensor must hold one element");
}

constexpr const char* kSyncDoc =
    " If several ranks run the program, the batch is the union of their parts, which may differ in "
    "size: ";

constexpr const char* kShareDoc = "[1], the rank's share of the batch; at 0, its rows are ignored";

bool IsStatistic(const RowQuery& query) {
  return query.output == "MeanOut" || query.output == "VarianceOut";
}

// Fixed statistics stay what they are, and those of sync_batch_norm are of all ranks' rows.
RowEffect NormRows(const RowQuery& query) {
  if (!IsStatistic(query)) return RowRule::kEach;
  const auto is = [&](const char* attr) { return query.spec.AttrOf<bool>(query.op, attr); };
  const bool fixed = is("use_global_stats") || (is("is_test") && !is("trainable_statistics"));
  return fixed || query.spec.type == "sync_batch_norm" ? RowRule::kSame : RowRule::kStatistic;
}

constexpr const char* kRowsDoc =
    "each by itself, given the batch's statistics; MeanOut and VarianceOut are running statistics";

OpDef ForwardDef(const std::string& type, const std::string& doc = {}) {
  return OpDef(type)
      .Doc(
          std::string() +
          "Y = Scale (X - mean) / sqrt(variance + epsilon) + Bias for each channel. In training, "
          "mean and biased variance are computed over the batch; with global statistics they are "
          "Mean and Variance: global = use_global_stats or (is_test and not trainable_statistics). "
          "In training MeanOut = momentum Mean + (1 - momentum) mean, VarianceOut likewise; they "
          "may be Mean and Variance themselves. For a batch of one element per channel, Y = X and "
          "the statistics are unchanged. No gradient flows through MeanOut and VarianceOut." +
          doc)
      .Apply(DeclareConstraints, type)
      .Input("X", "[N, C, ...], or [N, ..., C] for NHWC")
      .Input("Scale", "[C]")
      .Input("Bias", "[C]")
      .Input("Mean", "[C], running mean")
      .Input("Variance", "[C], running variance")
      .OptionalInput("MomentumTensor", "[1]; replaces attr momentum")
      .Output("Y", "of X's shape")
      .Output("MeanOut", "[C], new running mean")
      .Output("VarianceOut", "[C], new running variance")
      .IntermediateOutput("SavedMean", "[C], mean that was used")
      .IntermediateOutput("SavedVariance", "[C], 1 / sqrt(variance + epsilon) used")
      .IntermediateOutput("ReserveSpace", "empty")
      .Apply(DeclareNormAttrs)
      .Attr<float>("momentum", 0.9f, "weight of the old running statistics")
      .NoGradientTo({"Mean", "Variance", "MomentumTensor"})
      .Inplace("X", "Y")
      .Inplace("Mean", "MeanOut")
      .Inplace("Variance", "VarianceOut")
      .ImageLayout("data_layout", {"X", "Y"})
      .Float32Slots({"Scale", "Bias", "Mean", "Variance", "MomentumTensor", "MeanOut",
                     "VarianceOut", "SavedMean", "SavedVariance", "ReserveSpace"})
      .Rows(NormRows, kRowsDoc)
      .Tables({"Bias"})
      .Infer(InferBatchNorm)
      .Gradient(BatchNormGradient)
      .Reference(BatchNormReference<float>, BatchNormReference<double>)
      .Fast([](const PrepareContext& c) {
        return IsSync(c) ? SyncBatchNormFast(c) : BatchNormFast(c, FixedStatistics(c), false);
      });
}

OpDef GradDef(const std::string& type, const std::string& doc = {}) {
  return OpDef(type + "_grad")
      .Doc("Gradient of " + type +
           ". With xh the normalised X and n elements per channel: Bias@GRAD "
           "= sum Y@GRAD, Scale@GRAD = sum Y@GRAD xh, X@GRAD = Scale inv (Y@GRAD - Bias@GRAD / n - "
           "xh Scale@GRAD / n), without the last two terms for global statistics." +
           doc)
      .ConstraintsOf("batch_norm", {"C1", "C2", "C3"})
      .Constraint("C5", "Y@GRAD must have X's shape")
      .Constraint("C6", "global statistics need Mean and Variance")
      .Apply(DeclareGradInputs)
      .OptionalOutput("X@GRAD", "gradient of X")
      .OptionalOutput("Scale@GRAD", "gradient of Scale")
      .OptionalOutput("Bias@GRAD", "gradient of Bias")
      .Apply(DeclareNormAttrs)
      .NoGradientTo({"Mean", "Variance", "SavedMean", "SavedVariance"})
      .Inplace("Y@GRAD", "X@GRAD")
      .Inplace("X", "X@GRAD")
      .ImageLayout("data_layout", {"X", "Y@GRAD", "X@GRAD"})
      .Infer(InferBatchNormGrad)
      .Gradient(BatchNormGradGradient)
      .Reference(BatchNormGradReference<float>, BatchNormGradReference<double>)
      .Fast([](const PrepareContext& c) {
        return IsSync(c) ? SyncBatchNormGradFast(c)
                         : BatchNormGradFast(c, FixedStatistics(c), false);
      });
}

OpDef GradGradDef(const std::string& type, const std::string& doc = {}) {
  return OpDef(type + "_grad_grad")
      .Doc("Gradient of " + type + "_grad with respect to X, Scale and Y@GRAD." + doc)
      .ConstraintsOf("batch_norm", {"C1", "C2", "C3"})
      .Constraint("C5", "Y@GRAD and X@GRAD@GRAD must have X's shape")
      .ConstraintsOf("batch_norm_grad", {"C6"})
      .Apply(DeclareGradInputs)
      .Apply(DeclareGradGradSlots, "batch_norm")
      .Apply(DeclareNormAttrs)
      .Infer(InferBatchNormGradGrad)
      .Reference(BatchNormGradGradReference<float>, BatchNormGradGradReference<double>);
}

void Register(OpRegistry& ops) {
  ops.Add(ForwardDef("batch_norm"));
  ops.Add(GradDef("batch_norm"));
  ops.Add(GradGradDef("batch_norm"));
  ops.Add(ForwardDef("sync_batch_norm",
                     std::string(kSyncDoc) +
                         "their numbers, sums and squared deviations are added in two exchanges.")
              .Constraint("C7", "Share must hold one number of a float type")
              .OptionalInput("Share", kShareDoc)
              .NoGradientTo({"Share"})
              .ForRanks()
              .Infer(InferSyncBatchNorm));
  ops.Add(
      GradDef("sync_batch_norm", std::string(kSyncDoc) +
                                     "X@GRAD uses the sums over all ranks, from one exchange; "
                                     "Scale@GRAD and Bias@GRAD are sums over the rank's own rows.")
          .ConstraintsOf("sync_batch_norm", {"C7"})
          .OptionalInput("Share", kShareDoc)
          .NoGradientTo({"Share"})
          .ForRanks()
          .Infer(InferSyncBatchNormGrad));
  ops.Add(GradGradDef("sync_batch_norm", " It runs on a single rank only.").ForRanks());
}

}  // namespace coracle::batch_norm_op
