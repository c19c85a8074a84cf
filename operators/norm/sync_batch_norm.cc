// sync_batch_norm: batch_norm over the batch of all ranks.

#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/operators/norm/batch_norm.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace coracle::inline internal {
namespace {

// Whether this rank's rows are used.
struct Counted {
  TensorArg share;
  explicit Counted(const PrepareContext& ctx) : share(ctx.Input("Share")) {}
  bool operator()(Workspace& ws) const {
    if (!share) return true;
    if (IsHalf(share.dtype)) return (*ws.Data<const uint16_t>(share) & 0x7fff) != 0;
    return share.dtype == DType::kFloat64 ? *ws.Data<const double>(share) > 0
                                          : *ws.Data<const float>(share) > 0;
  }
};

void Sum(Workspace& ws, double* values, int64_t count, const std::string& name) {
  if (!ws.comm()) return;
  Exchange exchange{Exchange::Kind::kAllReduce, DType::kFloat64, {count}, values, values};
  exchange.name = name;
  ws.comm()->Run(exchange);
}

// The mean and variance of each channel over the used rows of all ranks.
template <class T, bool kFast>
class Moments {
 public:
  Moments(const PrepareContext& ctx, const NormView& view)
      : view_(view),
        counted_(ctx),
        name_(ctx.op().Input("X")[0]),
        sums_(ctx.Scratch(DType::kFloat64, {view.groups + 1})),
        chunks_(ctx.Scratch(DType::kFloat64, {kFast ? ChannelScratch(view) : 1})) {}

  // Returns the number of elements of a channel.
  int64_t operator()(Workspace& ws, const T* x, double* mean, double* variance) const {
    const int64_t channels = view_.groups;
    const double own = counted_(ws) ? static_cast<double>(view_.size) : 0;
    if constexpr (kFast) {
      ForChannelParts(view_, 1, [&](const NormView& part, int64_t first) {
        ChannelMoments(part, x + part.At(first, 0), ws.Data<double>(chunks_) + first, mean + first,
                       variance + first);
      });
    } else {
      NormMoments(view_, x, mean, variance);
    }
    if (!ws.comm()) return view_.size;
    double* sums = ws.Data<double>(sums_);
    for (int64_t c = 0; c < channels; ++c) sums[c] = own > 0 ? own * mean[c] : 0;
    sums[channels] = own;
    Sum(ws, sums, channels + 1, name_);
    const double total = sums[channels];
    if (total <= 1) return static_cast<int64_t>(total);
    for (int64_t c = 0; c < channels; ++c) {
      const double all = sums[c] / total, away = mean[c] - all;
      mean[c] = all;
      sums[c] = own > 0 ? own * (variance[c] + away * away) : 0;
    }
    Sum(ws, sums, channels, name_);
    for (int64_t c = 0; c < channels; ++c) variance[c] = sums[c] / total;
    return static_cast<int64_t>(total);
  }

 private:
  NormView view_;
  Counted counted_;
  std::string name_;
  TensorArg sums_, chunks_;
};

template <class T, bool kFast>
Kernel Forward(const PrepareContext& ctx) {
  const BatchNormForward<T> f(ctx, false);
  const Moments<T, kFast> moments(ctx, f.view);
  const TensorArg affine = ctx.Scratch(DType::kFloat32, {kFast ? 3 * f.view.groups : 1});
  return [=](Workspace& ws) {
    const int64_t n = f.view.groups;
    const T *x = ws.Data<const T>(f.x), *scale = ws.Data<const T>(f.scale),
            *bias = ws.Data<const T>(f.bias);
    T* y = ws.Data<T>(f.y);
    double* s = ws.Data<double>(f.stats);
    const bool identity = moments(ws, x, s, s + n) <= 1;
    f.InvertVariance(ws, 0, n);
    if (identity) {
      if (x != y) std::copy_n(x, f.x.numel, y);
    } else if constexpr (kFast) {
      // a (x - shift) + b, where shift is the rounded mean.
      float *a = ws.Data<float>(affine), *b = a + n, *shift = b + n;
      for (int64_t c = 0; c < n; ++c) {
        const double factor = static_cast<double>(scale[c]) * s[2 * n + c];
        a[c] = static_cast<float>(factor);
        shift[c] = static_cast<float>(s[c]);
        const double rest = s[c] - static_cast<double>(shift[c]);
        b[c] = static_cast<float>(static_cast<double>(bias[c]) - rest * factor);
      }
      ForChannelParts(f.view, 2, [&](const NormView& part, int64_t first) {
        const int64_t at = part.At(first, 0);
        ChannelAffine(part, x + at, shift + first, a + first, b + first, y + at);
      });
    } else {
      NormApply(f.view, x, s, s + 2 * n, scale, bias, y);
    }
    f.WriteStatistics(ws, identity);
  };
}

// The formula of batch_norm_grad, with n and the two sums over all ranks.
template <class T, bool kFast>
Kernel Gradient(const PrepareContext& ctx) {
  const BatchNormStatistics<T> stats(ctx, false);
  const NormGradSlots slots(ctx);
  const NormView v = stats.view;
  const Moments<T, kFast> moments(ctx, v);
  const Counted counted(ctx);
  const TensorArg sums = ctx.Scratch(DType::kFloat64, {2 * v.groups + 1});
  const TensorArg chunks = ctx.Scratch(DType::kFloat64, {kFast ? ChannelScratch(v) : 1});
  const TensorArg factors = ctx.Scratch(DType::kFloat32, {kFast ? 4 * v.groups : 1});
  const std::string name = ctx.op().Input("Y@GRAD")[0];
  return [=](Workspace& ws) {
    const int64_t n = v.groups;
    const T *x = ws.Data<const T>(stats.x), *dy = ws.Data<const T>(slots.dy),
            *scale = ws.Data<const T>(slots.scale);
    T *dx = DataOrNull<T>(ws, slots.dx), *dscale = DataOrNull<T>(ws, slots.dscale),
      *dbias = DataOrNull<T>(ws, slots.dbias);
    double* s = ws.Data<double>(stats.stats);
    if (stats.saved_mean && stats.saved_inv) {
      stats.Read(ws);
    } else {
      moments(ws, x, s, s + n);
      for (int64_t c = 0; c < n; ++c) s[n + c] = 1 / std::sqrt(s[n + c] + stats.epsilon);
    }
    double *sum_dy = ws.Data<double>(sums), *sum_dyx = sum_dy + n;
    if constexpr (kFast) {
      float* mean = ws.Data<float>(factors);
      for (int64_t c = 0; c < n; ++c) mean[c] = static_cast<float>(s[c]);
      ForChannelParts(v, 2, [&](const NormView& part, int64_t first) {
        const int64_t at = part.At(first, 0);
        ChannelGradSums(part, x + at, dy + at, mean + first, ws.Data<double>(chunks) + first,
                        sum_dy + first, sum_dyx + first);
      });
    } else {
      for (int64_t c = 0; c < n; ++c) {
        double first = 0, second = 0;
        for (int64_t i = 0; i < v.size; ++i) {
          const auto d = static_cast<double>(dy[v.At(c, i)]);
          first += d;
          second += d * (static_cast<double>(x[v.At(c, i)]) - s[c]);
        }
        sum_dy[c] = first;
        sum_dyx[c] = second;
      }
    }
    for (int64_t c = 0; c < n; ++c) {
      if (dbias) dbias[c] = static_cast<T>(sum_dy[c]);
      if (dscale) dscale[c] = static_cast<T>(sum_dyx[c] * s[n + c]);
    }
    const bool counts = counted(ws);
    if (!counts) std::fill_n(sum_dy, 2 * n, 0.0);
    sum_dy[2 * n] = counts ? static_cast<double>(v.size) : 0;
    Sum(ws, sum_dy, 2 * n + 1, name);
    const double total = sum_dy[2 * n];
    if (total <= 1) {  // Y = X
      if (dx && dx != dy) std::copy_n(dy, slots.dx.numel, dx);
      if (dscale) std::fill_n(dscale, n, T(0));
      if (dbias) std::fill_n(dbias, n, T(0));
      return;
    }
    if (!dx) return;
    // dX = p dY + q (X - mean) + r
    const auto factors_of = [&](int64_t c) {
      const double inv = s[n + c];
      const double p = counts ? static_cast<double>(scale[c]) * inv : 0;
      return std::array{p, -p * inv * inv * sum_dyx[c] / total, -p * sum_dy[c] / total};
    };
    if constexpr (kFast) {
      float *mean = ws.Data<float>(factors), *p = mean + n, *q = p + n, *r = q + n;
      for (int64_t c = 0; c < n; ++c) {
        const auto f = factors_of(c);
        p[c] = static_cast<float>(f[0]);
        q[c] = static_cast<float>(f[1]);
        r[c] = static_cast<float>(f[2]);
      }
      ForChannelParts(v, 3, [&](const NormView& part, int64_t first) {
        const int64_t at = part.At(first, 0);
        ChannelGradApply(part, x + at, dy + at, mean + first, p + first, q + first, r + first,
                         dx + at);
      });
    } else {
      for (int64_t c = 0; c < n; ++c) {
        const auto f = factors_of(c);
        for (int64_t i = 0; i < v.size; ++i) {
          const int64_t at = v.At(c, i);
          const double centred = static_cast<double>(x[at]) - s[c];
          dx[at] = static_cast<T>(f[0] * static_cast<double>(dy[at]) + f[1] * centred + f[2]);
        }
      }
    }
  };
}

}  // namespace

template <class T>
Kernel SyncBatchNorm(const PrepareContext& ctx) {
  return Forward<T, false>(ctx);
}
template <class T>
Kernel SyncBatchNormGrad(const PrepareContext& ctx) {
  return Gradient<T, false>(ctx);
}

Kernel SyncBatchNormFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X");
  return x.dtype == DType::kFloat32 && x.numel > 0 ? Forward<float, true>(ctx) : Kernel();
}
Kernel SyncBatchNormGradFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X");
  return x.dtype == DType::kFloat32 && x.numel > 0 ? Gradient<float, true>(ctx) : Kernel();
}

template Kernel SyncBatchNorm<float>(const PrepareContext&);
template Kernel SyncBatchNorm<double>(const PrepareContext&);
template Kernel SyncBatchNormGrad<float>(const PrepareContext&);
template Kernel SyncBatchNormGrad<double>(const PrepareContext&);

}  // namespace coracle::inline internal
