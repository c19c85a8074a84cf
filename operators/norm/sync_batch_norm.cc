// sync_batch_norm: batch_norm over the batch of all ranks.

#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/operators/norm/batch_norm.h>

#include <algorithm>
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
      const auto factors_of = [&](int64_t c) -> NormFactors {
        const double inv = s[2 * n + c], factor = static_cast<double>(scale[c]) * inv;
        const double rest = s[c] - static_cast<double>(shift[c]);
        return {0, factor, static_cast<double>(bias[c]) - rest * factor, inv};
      };
      for (int64_t c = 0; c < n; ++c) {
        shift[c] = static_cast<float>(s[c]);
        const NormFactors exact = factors_of(c);
        a[c] = exact.InFloat(exact.q);
        b[c] = static_cast<float>(exact.r);
      }
      ForChannelParts(f.view, 2, [&](const NormView& part, int64_t first) {
        const int64_t at = part.At(first, 0);
        const auto exact = [&](int64_t k) { return factors_of(first + k); };
        ChannelAffine(part, NormAffine{x + at, nullptr, y + at}, shift + first, a + first,
                      b + first, ExactFactors(exact));
      });
    } else {
      NormApply(f.view, x, s, s + 2 * n, scale, bias, y);
    }
    f.WriteStatistics(ws, identity);
  };
}

// The formula of batch_norm_grad, with n and the two sums over all ranks.
template <class T, bool kFast>
class Gradient {
 public:
  explicit Gradient(const PrepareContext& ctx)
      : stats_(ctx, false),
        slots_(ctx),
        view_(stats_.view),
        moments_(ctx, view_),
        counted_(ctx),
        sums_(ctx.Scratch(DType::kFloat64, {2 * view_.groups + 1})),
        chunks_(ctx.Scratch(DType::kFloat64, {kFast ? ChannelScratch(view_) : 1})),
        factors_(ctx.Scratch(DType::kFloat32, {kFast ? 4 * view_.groups : 1})),
        name_(ctx.op().Input("Y@GRAD")[0]) {}

  void operator()(Workspace& ws) const {
    ReadStatistics(ws);
    SumRows(ws);
    WriteAffine(ws);
    const bool counts = counted_(ws);
    const double total = SumRanks(ws, counts);
    if (total <= 1)
      WriteIdentity(ws);
    else if (DataOrNull<T>(ws, slots_.dx))
      WriteInput(ws, counts, total);
  }

 private:
  void ReadStatistics(Workspace& ws) const {
    if (stats_.saved_mean && stats_.saved_inv) {
      stats_.Read(ws);
      return;
    }
    const int64_t n = view_.groups;
    double* s = ws.Data<double>(stats_.stats);
    moments_(ws, ws.Data<const T>(stats_.x), s, s + n);
    for (int64_t c = 0; c < n; ++c) s[n + c] = 1 / std::sqrt(s[n + c] + stats_.epsilon);
  }

  // For each channel of this rank the sum of dY, and the sum of dY (X - mean).
  void SumRows(Workspace& ws) const {
    const T *x = ws.Data<const T>(stats_.x), *dy = ws.Data<const T>(slots_.dy);
    const double* mean = ws.Data<double>(stats_.stats);
    double *sum_dy = ws.Data<double>(sums_), *sum_dyx = sum_dy + view_.groups;
    if constexpr (kFast) {
      float* rounded = ws.Data<float>(factors_);
      for (int64_t c = 0; c < view_.groups; ++c) rounded[c] = static_cast<float>(mean[c]);
      ForChannelParts(view_, 2, [&](const NormView& part, int64_t first) {
        const int64_t at = part.At(first, 0);
        ChannelGradSums(part, x + at, dy + at, rounded + first, ws.Data<double>(chunks_) + first,
                        sum_dy + first, sum_dyx + first);
      });
      for (int64_t c = 0; c < view_.groups; ++c)
        sum_dyx[c] += OfRest(sum_dy[c], static_cast<double>(rounded[c]) - mean[c]);
    } else {
      for (int64_t c = 0; c < view_.groups; ++c) {
        sum_dy[c] = sum_dyx[c] = 0;
        for (int64_t i = 0; i < view_.size; ++i) {
          const auto d = static_cast<double>(dy[view_.At(c, i)]);
          sum_dy[c] += d;
          sum_dyx[c] += d * (static_cast<double>(x[view_.At(c, i)]) - mean[c]);
        }
      }
    }
  }

  void WriteAffine(Workspace& ws) const {
    const int64_t n = view_.groups;
    T *dscale = DataOrNull<T>(ws, slots_.dscale), *dbias = DataOrNull<T>(ws, slots_.dbias);
    const double *sum_dy = ws.Data<double>(sums_), *sum_dyx = sum_dy + n;
    const double* inv = ws.Data<double>(stats_.stats) + n;
    for (int64_t c = 0; c < n; ++c) {
      if (dbias) dbias[c] = static_cast<T>(sum_dy[c]);
      if (dscale) dscale[c] = static_cast<T>(sum_dyx[c] * inv[c]);
    }
  }

  // Returns the number of elements of a channel on all ranks.
  double SumRanks(Workspace& ws, bool counts) const {
    const int64_t n = view_.groups;
    double* sums = ws.Data<double>(sums_);
    if (!counts) std::fill_n(sums, 2 * n, 0.0);
    sums[2 * n] = counts ? static_cast<double>(view_.size) : 0;
    Sum(ws, sums, 2 * n + 1, name_);
    return sums[2 * n];
  }

  // Y = X.
  void WriteIdentity(Workspace& ws) const {
    const T* dy = ws.Data<const T>(slots_.dy);
    T* dx = DataOrNull<T>(ws, slots_.dx);
    if (dx && dx != dy) std::copy_n(dy, slots_.dx.numel, dx);
    for (const TensorArg& arg : {slots_.dscale, slots_.dbias})
      if (arg) std::fill_n(ws.Data<T>(arg), view_.groups, T(0));
  }

  // dX = p dY + q (X - mean) + r, for one channel.
  NormFactors FactorsOf(Workspace& ws, int64_t c, bool counts, double total) const {
    const int64_t n = view_.groups;
    const double *sum_dy = ws.Data<double>(sums_), *sum_dyx = sum_dy + n;
    const double inv = ws.Data<double>(stats_.stats)[n + c];
    const double p = counts ? static_cast<double>(ws.Data<const T>(slots_.scale)[c]) * inv : 0;
    return {p, -p * inv * inv * sum_dyx[c] / total, -p * sum_dy[c] / total, inv};
  }

  void WriteInput(Workspace& ws, bool counts, double total) const {
    const int64_t n = view_.groups;
    const T *x = ws.Data<const T>(stats_.x), *dy = ws.Data<const T>(slots_.dy);
    T* dx = ws.Data<T>(slots_.dx);
    if constexpr (kFast) {
      const double* means = ws.Data<double>(stats_.stats);
      float *mean = ws.Data<float>(factors_), *p = mean + n, *q = p + n, *r = q + n;
      ForChannelParts(view_, 3, [&](const NormView& part, int64_t first) {
        const int64_t at = part.At(first, 0);
        const auto factors_of = [&](int64_t k) {
          NormFactors f = FactorsOf(ws, first + k, counts, total);
          f.r += OfRest(f.q, static_cast<double>(mean[first + k]) - means[first + k]);
          return f;
        };
        ChannelGrad(part, NormTerms{x + at, dy + at}, mean + first, factors_of, p + first,
                    q + first, r + first, dx + at);
      });
    } else {
      const double* mean = ws.Data<double>(stats_.stats);
      for (int64_t c = 0; c < n; ++c) {
        const NormFactors f = FactorsOf(ws, c, counts, total);
        for (int64_t i = 0; i < view_.size; ++i) {
          const int64_t at = view_.At(c, i);
          const double centred = static_cast<double>(x[at]) - mean[c];
          dx[at] = static_cast<T>(f.p * static_cast<double>(dy[at]) + f.q * centred + f.r);
        }
      }
    }
  }

  BatchNormStatistics<T> stats_;
  NormGradSlots slots_;
  NormView view_;
  Moments<T, kFast> moments_;
  Counted counted_;
  TensorArg sums_, chunks_, factors_;
  std::string name_;
};

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
  return x.dtype == DType::kFloat32 && x.numel > 0 ? Kernel(Gradient<float, true>(ctx)) : Kernel();
}

template Kernel SyncBatchNorm<float>(const PrepareContext&);
template Kernel SyncBatchNorm<double>(const PrepareContext&);
template Kernel SyncBatchNormGrad<float>(const PrepareContext&);
template Kernel SyncBatchNormGrad<double>(const PrepareContext&);

}  // namespace coracle::inline internal
