#pragma once
// batch_norm and its fusions: Y = act(norm(X) + Z), where act is relu or nothing and Z may be
// absent. `fixed` below: the statistics are Mean and Variance instead of those of the batch.

#include <coracle/framework/op/kernel/half_kernel.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/norm/norm_def.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>

namespace coracle::inline internal {

// --- rules ---

template <class Context>
int BatchNormChannelAxis(const Context& ctx, int rank) {
  return ImageLayoutOf(ctx.template Attr<std::string>("data_layout")).channels_last ? rank - 1 : 1;
}

// Checks constraints C1 to C3 of batch_norm for X and these slots. Returns the number of channels;
// -1 if unknown.
int64_t CheckBatchNormChannels(const InferContext& ctx, std::initializer_list<const char*> slots);

// --- kernels ---

NormView BatchNormView(const PrepareContext& ctx, const Shape& x);

// With at most one element for each channel there is no variance, and Y = X.
inline bool IsIdentityNorm(const NormView& v, bool fixed) { return !fixed && v.size <= 1; }

// Args and statistics of the forward op.
template <class T>
struct BatchNormForward {
  TensorArg x, scale, bias, mean, variance, momentum_tensor;
  TensorArg y, mean_out, variance_out, saved_mean, saved_variance;
  TensorArg stats;  // doubles: mean, variance, then 1 / sqrt(variance + epsilon)
  NormView view;
  bool fixed;
  double epsilon, momentum;

  // With `halves`, X and Y are accessed in their stored dtype (HalfInput).
  BatchNormForward(const PrepareContext& ctx, bool fixed_statistics, bool halves = false)
      : x(halves ? HalfInput(ctx, "X") : ctx.Input("X")),
        scale(ctx.Input("Scale")),
        bias(ctx.Input("Bias")),
        mean(ctx.Input("Mean")),
        variance(ctx.Input("Variance")),
        momentum_tensor(ctx.Input("MomentumTensor")),
        y(halves ? HalfOutput(ctx, "Y") : ctx.Output("Y")),
        mean_out(ctx.Output("MeanOut")),
        variance_out(ctx.Output("VarianceOut")),
        saved_mean(ctx.Output("SavedMean")),
        saved_variance(ctx.Output("SavedVariance")),
        view(BatchNormView(ctx, x.shape)),
        fixed(fixed_statistics),
        epsilon(static_cast<double>(ctx.Attr<float>("epsilon"))),
        momentum(static_cast<double>(ctx.Attr<float>("momentum"))) {
    stats = ctx.Scratch(DType::kFloat64, {3 * view.groups});
  }

  bool identity() const { return IsIdentityNorm(view, fixed); }

  // Computes inv for channels [begin, end). REQUIRES: `stats` has their mean and variance of the
  // batch, unless the statistics are fixed.
  void InvertVariance(Workspace& ws, int64_t begin, int64_t end) const {
    double* s = ws.Data<double>(stats);
    const int64_t n = view.groups;
    for (int64_t c = begin; c < end; ++c) {
      if (fixed) {
        s[c] = static_cast<double>(ws.Data<const T>(mean)[c]);
        s[n + c] = static_cast<double>(ws.Data<const T>(variance)[c]);
      }
      s[2 * n + c] = 1 / std::sqrt(s[n + c] + epsilon);
    }
  }

  // `identity`: the batch of all ranks has one element for each channel.
  void WriteStatistics(Workspace& ws, bool identity) const {
    const double* s = ws.Data<const double>(stats);
    const int64_t n = view.groups;
    const double m =
        momentum_tensor ? static_cast<double>(ws.Data<const T>(momentum_tensor)[0]) : momentum;
    const double keep = fixed || identity ? 1 : m;
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
      if (saved_mean) ws.Data<T>(saved_mean)[c] = identity ? T(0) : static_cast<T>(s[c]);
      if (saved_variance)
        ws.Data<T>(saved_variance)[c] = identity ? T(0) : static_cast<T>(s[2 * n + c]);
    }
  }

  // The whole op in plain loops, except that `out` gets norm(X) instead of Y.
  void RunReference(Workspace& ws, T* out) const {
    const T* in = ws.Data<const T>(x);
    if (identity()) {
      if (in != out) std::copy(in, in + x.numel, out);
    } else {
      double* s = ws.Data<double>(stats);
      const int64_t n = view.groups;
      if (!fixed) NormMoments(view, in, s, s + n);
      InvertVariance(ws, 0, n);
      NormApply(view, in, s, s + 2 * n, ws.Data<const T>(scale), ws.Data<const T>(bias), out);
    }
    WriteStatistics(ws, identity());
  }
};

// Statistics for gradients: mean and 1 / sqrt(variance + epsilon) in doubles.
template <class T>
struct BatchNormStatistics {
  TensorArg x, mean, variance, saved_mean, saved_inv, stats;
  NormView view;
  bool fixed;
  double epsilon;

  BatchNormStatistics(const PrepareContext& ctx, bool fixed_statistics, bool halves = false)
      : x(halves ? HalfInput(ctx, "X") : ctx.Input("X")),
        mean(ctx.Input("Mean")),
        variance(ctx.Input("Variance")),
        saved_mean(ctx.Input("SavedMean")),
        saved_inv(ctx.Input("SavedVariance")),
        view(BatchNormView(ctx, x.shape)),
        fixed(fixed_statistics),
        epsilon(static_cast<double>(ctx.Attr<float>("epsilon"))) {
    stats = ctx.Scratch(DType::kFloat64, {2 * view.groups});
  }

  // Returns mean, then inv.
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

// Computes X@GRAD, Scale@GRAD and Bias@GRAD of the prepared op in plain loops; `dy` is the gradient
// of norm(X).
template <class T>
void RunBatchNormGrad(Workspace& ws, const BatchNormStatistics<T>& stats, const T* dy,
                      const NormGradSlots& slots) {
  if (IsIdentityNorm(stats.view, stats.fixed)) {
    T* dx = DataOrNull<T>(ws, slots.dx);
    if (dx && dx != dy) std::copy_n(dy, slots.dx.numel, dx);
    for (const TensorArg& sum : {slots.dscale, slots.dbias})
      if (sum) std::fill_n(ws.Data<T>(sum), sum.numel, T(0));
    return;
  }
  NormGradArgs<T> a;
  a.x = ws.Data<const T>(stats.x);
  a.scale = ws.Data<const T>(slots.scale);
  a.dy = dy;
  a.mean = stats.Read(ws);
  a.inv = a.mean + stats.view.groups;
  a.fixed = stats.fixed;
  a.dx = DataOrNull<T>(ws, slots.dx);
  a.dscale = DataOrNull<T>(ws, slots.dscale);
  a.dbias = DataOrNull<T>(ws, slots.dbias);
  NormGrad(stats.view, a);
}

// Fast kernels for float32, and for bfloat16 with all other tensors in float32; empty for other
// cases, including a Z of another shape than X. With `relu`, the gradient reads Y or, with `by_x`,
// recomputes the sign of Y from X and Bias. They read all slots of the op, including Z and Z@GRAD.
Kernel BatchNormFast(const PrepareContext& ctx, bool fixed, bool relu);
Kernel BatchNormGradFast(const PrepareContext& ctx, bool fixed, bool relu, bool by_x = false);

// Kernels of sync_batch_norm and its gradient with the statistics of the batch of all ranks. T is
// float or double; the fast ones are for float32.
template <class T>
Kernel SyncBatchNorm(const PrepareContext& ctx);
template <class T>
Kernel SyncBatchNormGrad(const PrepareContext& ctx);
Kernel SyncBatchNormFast(const PrepareContext& ctx);
Kernel SyncBatchNormGradFast(const PrepareContext& ctx);

}  // namespace coracle::inline internal
