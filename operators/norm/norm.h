#pragma once
// Normalisation of groups of elements by their mean and variance. Each op defines its groups: a
// channel for batch_norm, a row for layer_norm.
//
// With m and v the mean and biased variance of a group, inv = 1 / sqrt(v + epsilon) and xh = (x -
// m) inv, for groups of n elements:
//   y  = scale xh + bias
//   dx = inv P(g), g = scale dy, P(a) = a - mean(a) - xh mean(a xh)   (statistics of the batch)
//   dx = inv g                                                        (fixed statistics)
//   dscale = sum of dy xh, dbias = sum of dy

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/rng.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace coracle::inline internal {

struct NormView {
  int64_t groups = 0, size = 0;
  // Element i of group g is at (i / inner) * outer_stride + g * group_stride + (i % inner).
  int64_t inner = 1, outer_stride = 0, group_stride = 0;
  // If set, scale and bias have `channels` elements, and group g uses element g % channels; else
  // they have an element for each element of a group.
  bool per_group = false;
  int64_t channels = 0;

  int64_t At(int64_t g, int64_t i) const {
    return i / inner * outer_stride + g * group_stride + i % inner;
  }
  int64_t Param(int64_t g, int64_t i) const { return per_group ? g % channels : i; }
  int64_t params() const { return per_group ? channels : size; }
  int64_t numel() const { return groups * size; }
};

// [batch, channels, inner], or channels last [batch, inner, channels].
NormView ChannelView(int64_t batch, int64_t channels, int64_t inner, bool channels_last);
NormView RowView(int64_t rows, int64_t columns);

// --- reference loops; T is float or double, sums are double ---

template <class T>
void NormMoments(const NormView& v, const T* x, double* mean, double* variance);

// y = scale (x - mean) inv + bias; scale and bias may be null.
template <class T>
void NormApply(const NormView& v, const T* x, const double* mean, const double* inv, const T* scale,
               const T* bias, T* y);

template <class T>
struct NormGradArgs {
  const T *x = nullptr, *scale = nullptr, *dy = nullptr;  // scale may be null
  const double *mean = nullptr, *inv = nullptr;
  bool fixed = false;  // statistics do not depend on x
  // Null for a gradient that is not needed. dx may be x or dy.
  T *dx = nullptr, *dscale = nullptr, *dbias = nullptr;
};
template <class T>
void NormGrad(const NormView& v, const NormGradArgs<T>& a);

// The gradient of NormGrad. `ddx`, `ddscale`, `ddbias` are the gradients of its three results
// (null: none). With U, V, W these three and Q = sum over the group of U P(g):
//   dy'    = scale inv P(U) + V xh + W
//   scale' = sum of dy inv P(U)
//   x'     = inv P(h) - Q inv^2 xh / n, h = V dy - inv (U mean(g xh) + g mean(U xh))
// With fixed statistics, P is the identity and x' = V dy inv.
template <class T>
struct NormGradGradArgs {
  const T *x = nullptr, *scale = nullptr, *dy = nullptr;
  const T *ddx = nullptr, *ddscale = nullptr, *ddbias = nullptr;
  const double *mean = nullptr, *inv = nullptr;
  bool fixed = false;
  T *x_out = nullptr, *scale_out = nullptr, *dy_out = nullptr;  // each may be null
};
template <class T>
void NormGradGrad(const NormView& v, const NormGradGradArgs<T>& a);

// --- float32, vectorised ---

// Rows are summed in chunks whose number depends only on the shape, so that sums do not depend
// on threads.
inline int64_t NormChunks(int64_t rows, int64_t row_size) {
  const int64_t most = rows < 32 ? rows : 32, wanted = rows * row_size / 16384;
  return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

// The inputs of a sweep over a ChannelView or a similar view. Elements are float, or bfloat16,
// which is computed in float and rounded to nearest even when written.
template <class E>
struct NormTermsOf {
  const E *x = nullptr, *dy = nullptr;
  const E* y = nullptr;  // if given, dy is ignored where y <= 0
  E* masked = nullptr;   // with y: gets dy, or 0 where it is ignored; may be dy
  // If given instead of y, for each channel: dy is ignored where a (x - shift) + b <= 0.
  const float *a = nullptr, *b = nullptr;

  NormTermsOf From(int64_t at) const {
    NormTermsOf t = *this;
    t.x += at;
    if (dy) t.dy += at;
    if (y) t.y += at;
    if (masked) t.masked += at;
    return t;
  }
  // Whether the dy of element `at`, of channel c, is ignored; `shift` is the channel's.
  bool Ignores(int64_t c, int64_t at, float shift) const {
    if (a) return std::fma(static_cast<float>(x[at]) - shift, a[c], b[c]) <= 0;
    return y && static_cast<float>(y[at]) <= 0;
  }
};
using NormTerms = NormTermsOf<float>;

// For each channel, first = sum of a and second = sum of a (x - shift), where a is dy, or x - shift
// if there is no dy. `scratch` holds ChannelScratch(v) doubles.
int64_t ChannelScratch(const NormView& v);
template <class E>
void ChannelSums(const NormView& v, const NormTermsOf<E>& t, const float* shift, double* scratch,
                 double* first, double* second);
template <class E>
void ChannelMoments(const NormView& v, const E* x, double* scratch, double* mean, double* variance);
// sum_dy = sum of dy, sum_dyx = sum of dy (x - mean).
inline void ChannelGradSums(const NormView& v, const float* x, const float* dy, const float* mean,
                            double* scratch, double* sum_dy, double* sum_dyx) {
  ChannelSums(v, NormTerms{x, dy}, mean, scratch, sum_dy, sum_dyx);
}

// The factors of one channel in double. A gradient is dx = p dy + q (x - mean) + r; an output is
// y = q (x - shift) + r. `inv` is 1 / the deviation of the channel's x if its distance from the
// mean is at most 2^16 deviations; otherwise 0.
struct NormFactors {
  double p = 0, q = 0, r = 0, inv = 0;

  // Whether float32 loses digits of p or q although the term may be larger than the smallest normal
  // number. (The q of a gradient falls with the square of X, which divides X - mean.)
  bool IsLost() const {
    constexpr double kLeast = std::numeric_limits<float>::min();
    const auto is_below = [](double f) { return f != 0 && std::abs(f) < kLeast; };
    return is_below(p) || (is_below(q) && std::abs(q) * 0x1p16 > kLeast * inv);
  }
  // p or q in float32, or a nan, which sends every element of the channel to the computation in
  // double, if IsLost().
  float InFloat(double factor) const {
    return IsLost() ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(factor);
  }
};
// factor * rest, where `rest` is the rounding of a mean; an infinite factor has no correction.
inline double OfRest(double factor, double rest) {
  return rest == 0 || !std::isfinite(factor) ? 0 : factor * rest;
}

// factors(c), a function that returns the NormFactors of channel c and outlives the object.
class ExactFactors {
 public:
  template <class F>
  explicit ExactFactors(const F& factors)
      : factors_(&factors),
        call_([](const void* f, int64_t c) { return (*static_cast<const F*>(f))(c); }) {}
  NormFactors operator()(int64_t c) const { return call_(factors_, c); }

 private:
  const void* factors_;
  NormFactors (*call_)(const void*, int64_t);
};

// The same in float32, for each channel.
struct ChannelFactors {
  const float *p, *q, *r;
};
// How a sweep computes elements again in double.
struct LaneRepair {
  const ExactFactors& factors;
  const float* shift;           // one number for each channel
  int64_t channels, plane = 0;  // channels last: their number; else 0, and the channel

  int64_t Channel(int64_t at) const { return channels > 0 ? at % channels : plane; }
};

// y = a (x - shift) + b with each channel's a, shift and b, plus z if given; with `relu`, negative
// results become 0. y may be x or z.
template <class E>
struct NormAffineOf {
  const E *x = nullptr, *z = nullptr;
  E* y = nullptr;
  bool relu = false;

  NormAffineOf From(int64_t at) const { return {x + at, z ? z + at : nullptr, y + at, relu}; }
};
using NormAffine = NormAffineOf<float>;
// A result that is not finite in float32 is computed again in double, with a = q and b = r of the
// exact factors: an intermediate result may have overflowed.
template <class E>
void ChannelAffine(const NormView& v, const NormAffineOf<E>& t, const float* shift, const float* a,
                   const float* b, const ExactFactors& exact);
// dx = p dy + q (x - mean) + r with each channel's p, q, r; results that are not finite are
// computed again as in ChannelAffine. dx may be x or dy.
template <class E>
void ChannelGradApply(const NormView& v, const NormTermsOf<E>& t, const float* mean, const float* p,
                      const float* q, const float* r, const ExactFactors& exact, E* dx);
// ChannelGradApply with the NormFactors that factors(c) gives, which are written to p, q and r.
template <class E, class Factors>
void ChannelGrad(const NormView& v, const NormTermsOf<E>& t, const float* mean,
                 const Factors& factors, float* p, float* q, float* r, E* dx) {
  for (int64_t c = 0; c < v.groups; ++c) {
    const NormFactors f = factors(c);
    p[c] = f.InFloat(f.p);
    q[c] = static_cast<float>(f.q);
    r[c] = static_cast<float>(f.r);
  }
  ChannelGradApply(v, t, mean, p, q, r, ExactFactors(factors), dx);
}

// Calls body(part, its first channel) for parts with all channels. With channels first, a part is
// so small that several sweeps over it, each of which accesses up to `tensors` tensors, find its
// elements in the cache; with channels last there is one part. Offsets in a part are relative to
// its first channel.
template <class Body>
void ForChannelParts(const NormView& v, int64_t tensors, Body&& body) {
  constexpr int64_t kCacheBytes = 1 << 20;
  if (v.inner == 1) return body(v, int64_t{0});
  const int64_t most = kCacheBytes / static_cast<int64_t>(sizeof(float)) / tensors / (1 + v.size);
  const int64_t channels = most < 1 || v.groups < 1 ? 1 : most < v.groups ? most : v.groups;
  ParallelFor((v.groups + channels - 1) / channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * channels; first < end * channels; first += channels) {
      NormView part = v;
      part.groups = channels < v.groups - first ? channels : v.groups - first;
      body(part, first);
    }
  });
}

// Rows of `columns` elements; scale and bias may be null. Writes mean and variance.
void RowNorm(int64_t rows, int64_t columns, const float* x, const float* scale, const float* bias,
             float epsilon, float* y, float* mean, float* variance);

// The sum of two tensors; dropout may be applied to the first one before.
struct RowTerms {
  const float *x = nullptr, *y = nullptr;
  const Philox* random = nullptr;  // nullptr: no dropout (see random/drop.h)
  double p = 0;                    // elements of x become 0 if their word is below p 2^32
  float factor = 1;                // of the other elements
  uint8_t* mask = nullptr;         // may be null; gets 1 for kept elements
};
// RowNorm of the sum, which is also written. `sum` may be x or y, and out may be sum.
void RowSumNorm(int64_t rows, int64_t columns, const RowTerms& terms, float* sum,
                const float* scale, const float* bias, float epsilon, float* out, float* mean,
                float* variance);

// Operations on dx while it is in the cache.
struct RowGradEnd {
  const float* add = nullptr;  // added to dx
  float* copy = nullptr;       // then gets dx; may be dx
  // The copy is multiplied by `factor` where the mask is 1; elsewhere it is 0.
  const uint8_t* mask = nullptr;
  float factor = 1;
};
// Each row has a mean and inv. `scratch` holds RowScratch(rows, columns) floats for dscale and
// dbias, which are both given or both null; dx may be null.
int64_t RowScratch(int64_t rows, int64_t columns);
void RowNormGrad(int64_t rows, int64_t columns, const float* x, const float* scale, const float* dy,
                 const double* mean, const double* inv, float* scratch, float* dx, float* dscale,
                 float* dbias, const RowGradEnd& end = {});

}  // namespace coracle::inline internal
