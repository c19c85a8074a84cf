#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/norm/norm_def.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace coracle {
namespace {

// The statistics are Mean and Variance, not those of the batch.
template <class Context>
bool FixedStatistics(const Context& ctx) {
  return ctx.template Attr<bool>("use_global_stats") ||
         (ctx.template Attr<bool>("is_test") && !ctx.template Attr<bool>("trainable_statistics"));
}

template <class Context>
int ChannelAxis(const Context& ctx, int rank) {
  return ImageLayoutOf(ctx.template Attr<std::string>("data_layout")).channels_last ? rank - 1 : 1;
}

// --- shape rules ---

// Returns the number of channels; -1 when unknown.
int64_t CheckChannels(const InferContext& ctx, std::initializer_list<const char*> slots) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() >= 2 && x.rank() <= 5, x.rank());
  int64_t channels = x[ChannelAxis(ctx, x.rank())];
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

void InferBatchNorm(InferContext& ctx) {
  const int64_t channels = CheckChannels(ctx, {"Scale", "Bias", "Mean", "Variance"});
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

void CheckGrad(const InferContext& ctx) {
  CheckChannels(ctx, {"Scale", "Mean", "Variance", "SavedMean", "SavedVariance", "Scale@GRAD@GRAD",
                      "Bias@GRAD@GRAD"});
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

void InferBatchNormGradGrad(InferContext& ctx) {
  CheckGrad(ctx);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Scale@GRAD", ctx.Input("Scale"));
  ctx.SetOutput("Y@GRAD@GRAD", ctx.Input("X"));
}

// --- kernels ---

NormView ViewOf(const PrepareContext& ctx, const Shape& x) {
  const int axis = ChannelAxis(ctx, x.rank());
  return ChannelView(x[0], x[axis], axis == 1 ? x.Product(2, x.rank()) : x.Product(1, axis),
                     axis != 1);
}

// One element (or none) for each channel has no variance: Y = X then.
bool IsIdentity(const NormView& v, bool fixed) { return !fixed && v.size <= 1; }

template <class T>
struct Forward {
  TensorArg x, scale, bias, mean, variance, momentum_tensor;
  TensorArg y, mean_out, variance_out, saved_mean, saved_variance;
  TensorArg stats;  // doubles: mean, variance, then 1 / sqrt(variance + epsilon)
  NormView view;
  bool fixed;
  double epsilon, momentum;

  explicit Forward(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        scale(ctx.Input("Scale")),
        bias(ctx.Input("Bias")),
        mean(ctx.Input("Mean")),
        variance(ctx.Input("Variance")),
        momentum_tensor(ctx.Input("MomentumTensor")),
        y(ctx.Output("Y")),
        mean_out(ctx.Output("MeanOut")),
        variance_out(ctx.Output("VarianceOut")),
        saved_mean(ctx.Output("SavedMean")),
        saved_variance(ctx.Output("SavedVariance")),
        view(ViewOf(ctx, x.shape)),
        fixed(FixedStatistics(ctx)),
        epsilon(static_cast<double>(ctx.Attr<float>("epsilon"))),
        momentum(static_cast<double>(ctx.Attr<float>("momentum"))) {
    stats = ctx.Scratch(DType::kFloat64, {3 * view.groups});
  }

  bool identity() const { return IsIdentity(view, fixed); }

  // REQUIRES: mean and variance of the batch are in stats, unless the statistics are fixed.
  void InvertVariance(Workspace& ws) const {
    double* s = ws.Data<double>(stats);
    const int64_t n = view.groups;
    for (int64_t c = 0; c < n; ++c) {
      if (fixed) {
        s[c] = static_cast<double>(ws.Data<const T>(mean)[c]);
        s[n + c] = static_cast<double>(ws.Data<const T>(variance)[c]);
      }
      s[2 * n + c] = 1 / std::sqrt(s[n + c] + epsilon);
    }
  }

  void WriteStatistics(Workspace& ws) const {
    const double* s = ws.Data<const double>(stats);
    const int64_t n = view.groups;
    const double m =
        momentum_tensor ? static_cast<double>(ws.Data<const T>(momentum_tensor)[0]) : momentum;
    const double keep = fixed || identity() ? 1 : m;
    auto average = [&](const TensorArg& running, const TensorArg& out, const double* batch) {
      if (!out) return;
      for (int64_t c = 0; c < n; ++c) {
        const T old = ws.Data<const T>(running)[c];
        ws.Data<T>(out)[c] =
            keep == 1 ? old
                      : static_cast<T>(static_cast<double>(old) * keep + batch[c] * (1 - keep));
      }
    };
    average(mean, mean_out, s);
    average(variance, variance_out, s + n);
    for (int64_t c = 0; c < n; ++c) {
      if (saved_mean) ws.Data<T>(saved_mean)[c] = identity() ? T(0) : static_cast<T>(s[c]);
      if (saved_variance)
        ws.Data<T>(saved_variance)[c] = identity() ? T(0) : static_cast<T>(s[2 * n + c]);
    }
  }

  void Copy(Workspace& ws) const {
    const T* in = ws.Data<const T>(x);
    std::copy(in, in + x.numel, ws.Data<T>(y));
  }
};

template <class T>
KernelOf<T> BatchNormReference(const PrepareContext& ctx) {
  const Forward<T> f(ctx);
  return [f](Workspace& ws) {
    if (f.identity()) {
      f.Copy(ws);
    } else {
      double* s = ws.Data<double>(f.stats);
      const int64_t n = f.view.groups;
      if (!f.fixed) NormMoments(f.view, ws.Data<const T>(f.x), s, s + n);
      f.InvertVariance(ws);
      NormApply(f.view, ws.Data<const T>(f.x), s, s + 2 * n, ws.Data<const T>(f.scale),
                ws.Data<const T>(f.bias), ws.Data<T>(f.y));
    }
    f.WriteStatistics(ws);
  };
}

// Y = a X + b with a = Scale inv, b = Bias - mean a.
Kernel BatchNormFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  const Forward<float> f(ctx);
  if (f.x.numel == 0 || f.identity()) return {};
  const TensorArg sums = ctx.Scratch(DType::kFloat64, {ChannelScratch(f.view)});
  const TensorArg affine = ctx.Scratch(DType::kFloat32, {2 * f.view.groups});
  return [=](Workspace& ws) {
    double* s = ws.Data<double>(f.stats);
    const float* x = ws.Data<const float>(f.x);
    const int64_t n = f.view.groups;
    if (!f.fixed) ChannelMoments(f.view, x, ws.Data<double>(sums), s, s + n);
    f.InvertVariance(ws);
    float* a = ws.Data<float>(affine);
    for (int64_t c = 0; c < n; ++c) {
      const double factor = static_cast<double>(ws.Data<const float>(f.scale)[c]) * s[2 * n + c];
      a[c] = static_cast<float>(factor);
      a[n + c] =
          static_cast<float>(static_cast<double>(ws.Data<const float>(f.bias)[c]) - s[c] * factor);
    }
    ChannelAffine(f.view, x, a, a + n, ws.Data<float>(f.y));
    f.WriteStatistics(ws);
  };
}

// What both gradient ops start from: mean and 1 / sqrt(variance + epsilon) in doubles.
template <class T>
struct Statistics {
  TensorArg x, mean, variance, saved_mean, saved_inv, stats;
  NormView view;
  bool fixed;
  double epsilon;

  explicit Statistics(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        mean(ctx.Input("Mean")),
        variance(ctx.Input("Variance")),
        saved_mean(ctx.Input("SavedMean")),
        saved_inv(ctx.Input("SavedVariance")),
        view(ViewOf(ctx, x.shape)),
        fixed(FixedStatistics(ctx)),
        epsilon(static_cast<double>(ctx.Attr<float>("epsilon"))) {
    stats = ctx.Scratch(DType::kFloat64, {2 * view.groups});
  }

  // mean, then inv.
  double* Read(Workspace& ws) const {
    double* s = ws.Data<double>(stats);
    const int64_t n = view.groups;
    if (!fixed && saved_mean && saved_inv) {
      for (int64_t c = 0; c < n; ++c) {
        s[c] = static_cast<double>(ws.Data<const T>(saved_mean)[c]);
        s[n + c] = static_cast<double>(ws.Data<const T>(saved_inv)[c]);
      }
      return s;
    }
    if (fixed) {
      for (int64_t c = 0; c < n; ++c) {
        s[c] = static_cast<double>(ws.Data<const T>(mean)[c]);
        s[n + c] = static_cast<double>(ws.Data<const T>(variance)[c]);
      }
    } else {
      NormMoments(view, ws.Data<const T>(x), s, s + n);
    }
    for (int64_t c = 0; c < n; ++c) s[n + c] = 1 / std::sqrt(s[n + c] + epsilon);
    return s;
  }
};

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
KernelOf<T> BatchNormGradReference(const PrepareContext& ctx) {
  const Statistics<T> stats(ctx);
  const NormGradSlots slots(ctx);
  if (IsIdentity(stats.view, stats.fixed)) {
    return [=](Workspace& ws) {
      CopyOrZero<T>(ws, slots.dy, slots.dx);
      FillZeros<T>(ws, slots.dscale);
      FillZeros<T>(ws, slots.dbias);
    };
  }
  return [=](Workspace& ws) {
    const double* s = stats.Read(ws);
    NormGradArgs<T> a = slots.Args<T>(ws, s, s + stats.view.groups);
    a.fixed = stats.fixed;
    NormGrad(stats.view, a);
  };
}

// dX = p dY + q (X - mean) + r with p = Scale inv, q = -p inv^2 sum(dY (X - mean)) / n,
// r = -p sum(dY) / n; q = r = 0 for fixed statistics.
Kernel BatchNormGradFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  const Statistics<float> stats(ctx);
  const NormView v = stats.view;
  if (v.numel() == 0 || IsIdentity(v, stats.fixed)) return {};
  const TensorArg scale = ctx.Input("Scale"), dy = ctx.Input("Y@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dscale = ctx.Output("Scale@GRAD");
  const TensorArg dbias = ctx.Output("Bias@GRAD");
  const TensorArg chunks = ctx.Scratch(DType::kFloat64, {ChannelScratch(v)});
  const TensorArg totals = ctx.Scratch(DType::kFloat64, {2 * v.groups});
  const TensorArg factors = ctx.Scratch(DType::kFloat32, {4 * v.groups});
  const bool sums = dscale || dbias || (dx && !stats.fixed);
  return [=](Workspace& ws) {
    const int64_t n = v.groups;
    const double* s = stats.Read(ws);
    const float* x = ws.Data<const float>(stats.x);
    const float* go = ws.Data<const float>(dy);
    double* total = ws.Data<double>(totals);
    float* mean = ws.Data<float>(factors);
    for (int64_t c = 0; c < n; ++c) mean[c] = static_cast<float>(s[c]);
    if (sums) ChannelGradSums(v, x, go, mean, ws.Data<double>(chunks), total, total + n);
    for (int64_t c = 0; c < n; ++c) {
      const double inv = s[n + c];
      if (dbias) ws.Data<float>(dbias)[c] = static_cast<float>(total[c]);
      if (dscale) ws.Data<float>(dscale)[c] = static_cast<float>(total[n + c] * inv);
      const double p = static_cast<double>(ws.Data<const float>(scale)[c]) * inv;
      const double size = static_cast<double>(v.size);
      mean[n + c] = static_cast<float>(p);
      mean[2 * n + c] =
          stats.fixed ? 0.0f : static_cast<float>(-p * inv * inv * total[n + c] / size);
      mean[3 * n + c] = stats.fixed ? 0.0f : static_cast<float>(-p * total[c] / size);
    }
    if (!dx) return;
    ChannelGradApply(v, x, go, mean, mean + n, mean + 2 * n, mean + 3 * n, ws.Data<float>(dx));
  };
}

template <class T>
KernelOf<T> BatchNormGradGradReference(const PrepareContext& ctx) {
  const Statistics<T> stats(ctx);
  const TensorArg scale = ctx.Input("Scale"), dy = ctx.Input("Y@GRAD");
  const TensorArg ddx = ctx.Input("X@GRAD@GRAD"), ddscale = ctx.Input("Scale@GRAD@GRAD");
  const TensorArg ddbias = ctx.Input("Bias@GRAD@GRAD");
  const TensorArg x_out = ctx.Output("X@GRAD"), scale_out = ctx.Output("Scale@GRAD");
  const TensorArg dy_out = ctx.Output("Y@GRAD@GRAD");
  if (IsIdentity(stats.view, stats.fixed)) {
    return [=](Workspace& ws) {
      CopyOrZero<T>(ws, ddx, dy_out);
      FillZeros<T>(ws, x_out);
      FillZeros<T>(ws, scale_out);
    };
  }
  return [=](Workspace& ws) {
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

// Mean and Variance only where the statistics are fixed: training overwrites them.
void BatchNormGradient(GradientContext& g) {
  const bool fixed = FixedStatistics(g);
  SlotList inputs =
      fixed ? g.ForwardInputs({"X", "Scale", "Mean", "Variance"}) : g.ForwardInputs({"X", "Scale"});
  if (!fixed && g.HasOutput("SavedMean") && g.HasOutput("SavedVariance")) {
    inputs.push_back({"SavedMean", {g.Output("SavedMean")}});
    inputs.push_back({"SavedVariance", {g.Output("SavedVariance")}});
  }
  inputs.push_back({"Y@GRAD", {g.OutputGrad("Y")}});
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
  g.Append("batch_norm_grad_grad", inputs,
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
      .OptionalInput("Mean", "batch_norm's Mean; read with global statistics")
      .OptionalInput("Variance", "batch_norm's Variance; read with global statistics")
      .OptionalInput("SavedMean", "mean of the batch; made again when absent")
      .OptionalInput("SavedVariance", "1 / sqrt(variance of the batch + epsilon)")
      .Input("Y@GRAD", "gradient of Y");
}

void DeclareConstraints(OpDef& def, const std::string& type) {
  if (type != "batch_norm") return void(def.ConstraintsOf("batch_norm", {"C1", "C2", "C3", "C4"}));
  def.Constraint("C1", "X must have rank 2 to 5")
      .Constraint("C2", "Scale, Bias, Mean and Variance must have shape [channels]")
      .Constraint("C3",
                  "all inputs must have X's dtype; scale, bias and statistics may be float32 "
                  "beside an X of 16 bits")
      .Constraint("C4", "MomentumTensor must hold one element");
}

OpDef ForwardDef(const std::string& type) {
  return OpDef(type)
      .Doc(
          "Y = Scale (X - mean) / sqrt(variance + epsilon) + Bias for each channel. Mean and "
          "biased variance are those of the batch in training, else Mean and Variance: global = "
          "use_global_stats or (is_test and not trainable_statistics). In training MeanOut = "
          "momentum Mean + (1 - momentum) mean, VarianceOut likewise; they may be Mean and "
          "Variance themselves. A batch of one element per channel leaves Y = X and the statistics "
          "as they were. No gradient flows through MeanOut and VarianceOut.")
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
      .Attr<float>("momentum", 0.9f, "share of the old running statistics")
      .NoGradientTo({"Mean", "Variance", "MomentumTensor"})
      .Inplace("X", "Y")
      .Inplace("Mean", "MeanOut")
      .Inplace("Variance", "VarianceOut")
      .ImageLayout("data_layout", {"X", "Y"})
      .Float32Slots({"Scale", "Bias", "Mean", "Variance", "MomentumTensor", "MeanOut",
                     "VarianceOut", "SavedMean", "SavedVariance", "ReserveSpace"})
      .Infer(InferBatchNorm)
      .Gradient(BatchNormGradient)
      .Reference(BatchNormReference<float>, BatchNormReference<double>)
      .Fast(BatchNormFast);
}

OpDef GradDef(const std::string& type) {
  return OpDef(type + "_grad")
      .Doc("Gradient of " + type +
           ". With xh the normalised X and n elements per channel: Bias@GRAD "
           "= sum Y@GRAD, Scale@GRAD = sum Y@GRAD xh, X@GRAD = Scale inv (Y@GRAD - Bias@GRAD / n - "
           "xh Scale@GRAD / n), without the last two terms for global statistics.")
      .ConstraintsOf("batch_norm", {"C1", "C2", "C3"})
      .Constraint("C5", "Y@GRAD must have X's shape")
      .Constraint("C6", "global statistics need Mean and Variance")
      .Apply(DeclareGradInputs)
      .OptionalOutput("X@GRAD", "gradient of X")
      .OptionalOutput("Scale@GRAD", "gradient of Scale")
      .OptionalOutput("Bias@GRAD", "gradient of Bias")
      .Apply(DeclareNormAttrs)
      .NoGradientTo({"Mean", "Variance", "SavedMean", "SavedVariance"})
      .ImageLayout("data_layout", {"X", "Y@GRAD", "X@GRAD"})
      .Infer(InferBatchNormGrad)
      .Gradient(BatchNormGradGradient)
      .Reference(BatchNormGradReference<float>, BatchNormGradReference<double>)
      .Fast(BatchNormGradFast);
}

OpDef GradGradDef() {
  return OpDef("batch_norm_grad_grad")
      .Doc("Gradient of batch_norm_grad with respect to X, Scale and Y@GRAD.")
      .ConstraintsOf("batch_norm", {"C1", "C2", "C3"})
      .Constraint("C5", "Y@GRAD and X@GRAD@GRAD must have X's shape")
      .ConstraintsOf("batch_norm_grad", {"C6"})
      .Apply(DeclareGradInputs)
      .Apply(DeclareGradGradSlots, "batch_norm")
      .Apply(DeclareNormAttrs)
      .Infer(InferBatchNormGradGrad)
      .Reference(BatchNormGradGradReference<float>, BatchNormGradGradReference<double>);
}

}  // namespace

void RegisterBatchNorm(OpRegistry& ops) {
  ops.Add(ForwardDef("batch_norm"));
  ops.Add(GradDef("batch_norm"));
  ops.Add(GradGradDef());
  // Of one device, whose statistics are those of the whole batch.
  ops.Add(ForwardDef("sync_batch_norm"));
  ops.Add(GradDef("sync_batch_norm"));
}

}  // namespace coracle
