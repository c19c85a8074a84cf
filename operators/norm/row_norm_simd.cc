#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/norm/norm.h>
#include <coracle/operators/random/drop.h>

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/norm/row_norm_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = FloatTag;
using V = FloatVec;

// The longest row for sums in float.
constexpr int64_t kShortRow = 8192;
HWY_INLINE void ShortRowSums(const float* x, int64_t n, float shift, double* first,
                             double* second) {
  const D d;
  const V k = hn::Set(d, shift);
  const int64_t lanes = FloatLanes();
  V sums[2] = {hn::Zero(d), hn::Zero(d)}, squares[2] = {hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const V a = hn::Sub(hn::LoadU(d, x + i), k), b = hn::Sub(hn::LoadU(d, x + i + lanes), k);
    sums[0] = hn::Add(sums[0], a);
    sums[1] = hn::Add(sums[1], b);
    squares[0] = hn::MulAdd(a, a, squares[0]);
    squares[1] = hn::MulAdd(b, b, squares[1]);
  }
  double s = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(sums[0], sums[1]))));
  double q = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(squares[0], squares[1]))));
  for (; i < n; ++i) {
    const double v = static_cast<double>(x[i]) - static_cast<double>(shift);
    s += v;
    q += v * v;
  }
  if (!(std::isfinite(s) && std::isfinite(q))) {  // overflow of a float
    s = q = 0;
    for (i = 0; i < n; ++i) {
      const double v = static_cast<double>(x[i]) - static_cast<double>(shift);
      s += v;
      q += v * v;
    }
  }
  *first += s;
  *second += q;
}

HWY_INLINE void RowMoments(const float* x, int64_t n, float shift, double* first, double* second) {
  for (int64_t i = 0; i < n; i += kShortRow)
    ShortRowSums(x + i, std::min(n - i, kShortRow), shift, first, second);
}

// Whether float32 holds 1 / a deviation, so that products with ordinary numbers have their digits.
bool IsPlain(double inv) { return inv >= 1e-30 && inv <= 1e10; }

// Writes the first n lanes of v to `to`, except that value(i) gives those that are not finite.
template <class Value>
HWY_NOINLINE void StoreExactly(V v, float* to, int64_t n, const Value& value) {
  HWY_ALIGN float lanes[kMaxFloatLanes];
  hn::Store(v, D(), lanes);
  for (int64_t i = 0; i < n; ++i)
    to[i] = std::isfinite(lanes[i]) ? lanes[i] : static_cast<float>(value(i));
}

// The mean and the variance of a row whose squares vanish in float32.
HWY_NOINLINE void MomentsInDouble(const float* x, int64_t n, double* mean, double* variance) {
  double sum = 0, square = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  *mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(x[i]) - *mean;
    square += d * d;
  }
  *variance = square / static_cast<double>(n);
}

// One row of layer_norm.
void NormRow(const float* x, int64_t n, const float* scale, const float* bias, float epsilon,
             float* y, float* mean, float* variance) {
  double sum = 0, none = 0, square = 0;
  RowMoments(x, n, x[0], &sum, &none);
  float m = static_cast<float>(static_cast<double>(x[0]) + sum / static_cast<double>(n));
  sum = 0;
  RowMoments(x, n, m, &sum, &square);
  double rest = sum / static_cast<double>(n);  // the rounding error of m
  double v = std::max(square / static_cast<double>(n) - rest * rest, 0.0);
  constexpr double kLeast = 1e-30;
  if (v + static_cast<double>(epsilon) < kLeast) {
    double exact = 0;
    MomentsInDouble(x, n, &exact, &v);
    m = static_cast<float>(exact);
    rest = exact - static_cast<double>(m);
  }
  const double inv = 1 / std::sqrt(v + static_cast<double>(epsilon));
  *mean = m;
  *variance = static_cast<float>(v);
  // xh = (x - m - rest) inv
  const auto value = [&](int64_t i) {
    const double xh = (static_cast<double>(x[i]) - static_cast<double>(m) - rest) * inv;
    return xh * (scale ? static_cast<double>(scale[i]) : 1) +
           (bias ? static_cast<double>(bias[i]) : 0);
  };
  if (!IsPlain(inv)) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(value(i));
    return;
  }
  const V vm = hn::Set(D(), m), vi = hn::Set(D(), static_cast<float>(inv));
  const V vr = hn::Set(D(), static_cast<float>(-rest * inv)), one = hn::Set(D(), 1.0f);
  for (int64_t i = 0; i < n; i += FloatLanes()) {
    const V xh = hn::MulAdd(hn::Sub(LoadFirst(x + i, n - i), vm), vi, vr);
    const V s = scale ? LoadFirst(scale + i, n - i) : one;
    const V b = bias ? LoadFirst(bias + i, n - i) : hn::Zero(D());
    const V out = hn::MulAdd(xh, s, b);
    if (HWY_LIKELY(AllFinite(out)))
      StoreFirst(out, y + i, n - i);
    else
      StoreExactly(out, y + i, std::min(n - i, FloatLanes()),
                   [&](int64_t k) { return value(i + k); });
  }
}

// sum = x + y; sum may be x or y.
void AddTerms(const float* x, const float* y, float* sum, int64_t n) {
  for (int64_t i = 0; i < n; i += FloatLanes())
    StoreFirst(hn::Add(LoadFirst(x + i, n - i), LoadFirst(y + i, n - i)), sum + i, n - i);
}

void EndGrad(float* dx, int64_t n, const float* add, float* copy, const uint8_t* mask,
             float factor) {
  if (add) AddTerms(dx, add, dx, n);
  if (!mask) {
    if (copy && copy != dx) std::copy_n(dx, n, copy);
    return;
  }
  const hn::Rebind<uint8_t, D> bytes;
  const hn::RebindToSigned<D> numbers;
  const V f = hn::Set(D(), factor);
  int64_t i = 0;
  for (; i + FloatLanes() <= n; i += FloatLanes()) {
    const auto kept = hn::Ne(hn::PromoteTo(numbers, hn::LoadU(bytes, mask + i)), hn::Zero(numbers));
    const V v = hn::Mul(hn::LoadU(D(), dx + i), f);
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(D(), kept), v), D(), copy + i);
  }
  for (; i < n; ++i) copy[i] = mask[i] ? dx[i] * factor : 0.0f;
}

// The inputs of layer_norm's gradient. dscale and dbias are added to, and are both null or both
// given; then so are their parts in double, which get what would overflow a float.
struct RowGrads {
  const float *x, *dy, *scale;
  int64_t n;
  float *dx, *dscale, *dbias;
  double *wide_dscale, *wide_dbias;  // adjacent
  bool* wide_used;                   // whether they have been set

  double Xh(int64_t e, double mean, double inv) const {
    return (static_cast<double>(x[e]) - mean) * inv;
  }
  double Scaled(int64_t e, int64_t c) const {
    return static_cast<double>(dy[e]) * (scale ? static_cast<double>(scale[c]) : 1);
  }
};

// Adds to the sums in double what `rows` rows have in the columns [c, c + k).
HWY_NOINLINE void AddWide(const RowGrads& g, int64_t at, int64_t rows, const double* mean,
                          const double* inv, int64_t c, int64_t k) {
  if (!*g.wide_used) std::fill_n(g.wide_dscale, 2 * g.n, 0.0);
  *g.wide_used = true;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = c; i < c + k; ++i) {
      const int64_t e = at + r * g.n + i;
      g.wide_dscale[i] += static_cast<double>(g.dy[e]) * g.Xh(e, mean[r], inv[r]);
      g.wide_dbias[i] += static_cast<double>(g.dy[e]);
    }
  }
}

// The gradient of one row's elements in double.
HWY_NOINLINE void GradRowInDouble(const RowGrads& g, int64_t at, double mean, double inv) {
  double sum = 0, along = 0;
  for (int64_t c = 0; c < g.n; ++c) {
    sum += g.Scaled(at + c, c);
    along += g.Scaled(at + c, c) * g.Xh(at + c, mean, inv);
  }
  sum /= static_cast<double>(g.n);
  along /= static_cast<double>(g.n);
  for (int64_t c = 0; c < g.n; ++c) {
    const double rest = g.Scaled(at + c, c) - sum - g.Xh(at + c, mean, inv) * along;
    g.dx[at + c] = static_cast<float>(inv * rest);
  }
}

HWY_INLINE float MeanOfLanes(V v, int64_t n) {
  HWY_ALIGN float lanes[kMaxFloatLanes];
  hn::Store(v, D(), lanes);
  double sum = 0;
  for (int64_t l = 0; l < FloatLanes(); ++l) sum += static_cast<double>(lanes[l]);
  return static_cast<float>(sum / static_cast<double>(n));
}

// X@GRAD of R rows, from element `at` on: m and v are the rows' means and inverse deviations, and
// `means` and `alongs` the means of g and of g xh.
template <int R>
HWY_INLINE void WriteGradRows(const RowGrads& g, int64_t at, const double* mean, const double* inv,
                              const V* m, const V* v, const float* means, const float* alongs) {
  const int64_t n = g.n, lanes = FloatLanes();
  const V one = hn::Set(D(), 1.0f);
  V sum[R], along[R];
  for (int r = 0; r < R; ++r) {
    sum[r] = hn::Set(D(), means[r]);
    along[r] = hn::Set(D(), alongs[r]);
  }
  const auto second = [&](int64_t c, int64_t k) HWY_ATTR {
    const V scale = g.scale ? LoadFirst(g.scale + c, k) : one;
    V dx[R], nans = hn::Zero(D());
    for (int r = 0; r < R; ++r) {
      const int64_t e = at + r * n + c;
      const V xh = hn::Mul(hn::Sub(LoadFirst(g.x + e, k), m[r]), v[r]);
      const V s = hn::Sub(hn::Mul(LoadFirst(g.dy + e, k), scale), sum[r]);
      dx[r] = hn::Mul(v[r], hn::NegMulAdd(xh, along[r], s));
      // The product of an infinity or a nan with 0 is a nan.
      nans = hn::MulAdd(dx[r], hn::Zero(D()), nans);
    }
    if (HWY_LIKELY(AllFinite(nans))) {
      for (int r = 0; r < R; ++r) StoreFirst(dx[r], g.dx + at + r * n + c, k);
      return;
    }
    for (int r = 0; r < R; ++r) {
      const int64_t e = at + r * n + c;
      StoreExactly(dx[r], g.dx + e, k, [&](int64_t i) {
        const double rest = g.Scaled(e + i, c + i) - static_cast<double>(means[r]) -
                            g.Xh(e + i, mean[r], inv[r]) * static_cast<double>(alongs[r]);
        return inv[r] * rest;
      });
    }
  };
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) second(c, lanes);
  if (c < n) second(c, n - c);
}

// Computes R rows of layer_norm's gradient, from element `at` on.
template <int R>
HWY_INLINE void NormGradRows(const RowGrads& g, int64_t at, const double* mean, const double* inv) {
  const int64_t n = g.n, lanes = FloatLanes();
  const V one = hn::Set(D(), 1.0f);
  V m[R], v[R], sum[R], along[R];
  for (int r = 0; r < R; ++r) {
    m[r] = hn::Set(D(), static_cast<float>(mean[r]));
    v[r] = hn::Set(D(), static_cast<float>(inv[r]));
    sum[r] = along[r] = hn::Zero(D());
  }
  const auto first = [&](int64_t c, int64_t k) HWY_ATTR {
    const V scale = g.scale ? LoadFirst(g.scale + c, k) : one;
    V dscale = hn::Zero(D()), dbias = hn::Zero(D());
    for (int r = 0; r < R; ++r) {
      const V d = LoadFirst(g.dy + at + r * n + c, k);
      const V xh = hn::Mul(hn::Sub(LoadFirst(g.x + at + r * n + c, k), m[r]), v[r]);
      const V s = hn::Mul(d, scale);  // zero in the lanes past k
      sum[r] = hn::Add(sum[r], s);
      along[r] = hn::MulAdd(s, xh, along[r]);
      dscale = hn::MulAdd(d, xh, dscale);
      dbias = hn::Add(dbias, d);
    }
    if (!g.dscale) return;
    dscale = hn::Add(dscale, LoadFirst(g.dscale + c, k));
    dbias = hn::Add(dbias, LoadFirst(g.dbias + c, k));
    if (HWY_UNLIKELY(!AllFinite(hn::Add(dscale, dbias))))  // a nan for opposite infinities
      return AddWide(g, at, R, mean, inv, c, k);
    StoreFirst(dscale, g.dscale + c, k);
    StoreFirst(dbias, g.dbias + c, k);
  };
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) first(c, lanes);
  if (c < n) first(c, n - c);
  if (!g.dx) return;
  float means[R], alongs[R];
  bool plain = true;
  for (int r = 0; r < R; ++r) {
    means[r] = MeanOfLanes(sum[r], n);
    alongs[r] = MeanOfLanes(along[r], n);
    plain &= IsPlain(inv[r]) && std::isfinite(means[r]) && std::isfinite(alongs[r]);
  }
  if (HWY_UNLIKELY(!plain)) {
    for (int r = 0; r < R; ++r) GradRowInDouble(g, at + r * n, mean[r], inv[r]);
    return;
  }
  WriteGradRows<R>(g, at, mean, inv, m, v, means, alongs);
}

// Processes several rows at a time, so that the sums for scale and bias are rarely loaded and
// stored. In memory, the sums of bias follow the sums of scale.
void NormGradPart(const float* x, const float* dy, int64_t rows, int64_t n, const float* scale,
                  const double* mean, const double* inv, float* dx, float* dscale,
                  double* wide_dscale, bool* wide_used) {
  constexpr int kRows = 4;
  const RowGrads g{x,
                   dy,
                   scale,
                   n,
                   dx,
                   dscale,
                   dscale ? dscale + n : nullptr,
                   wide_dscale,
                   wide_dscale ? wide_dscale + n : nullptr,
                   wide_used};
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) NormGradRows<kRows>(g, r * n, mean + r, inv + r);
  for (; r < rows; ++r) NormGradRows<1>(g, r * n, mean + r, inv + r);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(NormRow);
HWY_EXPORT(NormGradPart);
HWY_EXPORT(AddTerms);
HWY_EXPORT(EndGrad);

constexpr int64_t kMostNormChunks = 32;  // the limit of NormChunks
// Elements that stay in the first-level cache from one loop to the next.
constexpr int64_t kNear = 2048;
// Rows of such a piece, a multiple of the rows that NormGradPart processes at a time.
int64_t RowsOfPiece(int64_t columns) { return (1 + kNear / (1 + columns) / 4) * 4; }

}  // namespace

void RowNorm(int64_t rows, int64_t columns, const float* x, const float* scale, const float* bias,
             float epsilon, float* y, float* mean, float* variance) {
  const auto norm = HWY_DYNAMIC_DISPATCH(NormRow);
  ParallelFor(rows, 1 + 16384 / (1 + columns), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      norm(x + r * columns, columns, scale, bias, epsilon, y + r * columns, mean + r, variance + r);
    }
  });
}

void RowSumNorm(int64_t rows, int64_t columns, const RowTerms& terms, float* sum,
                const float* scale, const float* bias, float epsilon, float* out, float* mean,
                float* variance) {
  const auto norm = HWY_DYNAMIC_DISPATCH(NormRow);
  const auto add = HWY_DYNAMIC_DISPATCH(AddTerms);
  const int64_t piece = RowsOfPiece(columns);
  ParallelFor(rows, 1 + 16384 / (1 + columns), [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += piece) {
      const int64_t last = std::min(first + piece, end);
      const int64_t at = first * columns, end_at = last * columns;
      if (terms.random)
        DropPart({*terms.random, terms.p, terms.factor}, at, end_at, terms.x, terms.y, sum,
                 terms.mask);
      else
        add(terms.x + at, terms.y + at, sum + at, end_at - at);
      for (int64_t r = first; r < last; ++r) {
        norm(sum + r * columns, columns, scale, bias, epsilon, out + r * columns, mean + r,
             variance + r);
      }
    }
  });
}

int64_t RowScratch(int64_t rows, int64_t columns) {
  // The sums of each chunk, as floats and as doubles.
  return NormChunks(rows, columns) * 2 * columns * 3;
}

void RowNormGrad(int64_t rows, int64_t columns, const float* x, const float* scale, const float* dy,
                 const double* mean, const double* inv, float* scratch, float* dx, float* dscale,
                 float* dbias, const RowGradEnd& end) {
  const auto grad = HWY_DYNAMIC_DISPATCH(NormGradPart);
  const auto finish = HWY_DYNAMIC_DISPATCH(EndGrad);
  const bool ends = dx && (end.add || end.copy);
  const int64_t chunks = NormChunks(rows, columns), piece = ends ? RowsOfPiece(columns) : rows;
  bool used[kMostNormChunks] = {};  // for each chunk, whether it has sums in double
  double* wide = dscale ? reinterpret_cast<double*>(scratch + 2 * chunks * columns) : nullptr;
  ParallelFor(chunks, 1, [&](int64_t from, int64_t to) {
    for (int64_t k = from; k < to; ++k) {
      float* own = dscale ? scratch + 2 * k * columns : nullptr;
      double* own_wide = wide ? wide + 2 * k * columns : nullptr;
      if (own) std::fill(own, own + 2 * columns, 0.0f);
      const int64_t last = rows * (k + 1) / chunks;
      for (int64_t first = rows * k / chunks; first < last; first += piece) {
        const int64_t at = first * columns, count = std::min(piece, last - first);
        grad(x + at, dy + at, count, columns, scale, mean + first, inv + first,
             dx ? dx + at : nullptr, own, own_wide, &used[k]);
        if (!ends) continue;
        finish(dx + at, count * columns, end.add ? end.add + at : nullptr,
               end.copy ? end.copy + at : nullptr, end.mask ? end.mask + at : nullptr, end.factor);
      }
    }
  });
  if (!dscale) return;
  constexpr int64_t kBlock = 64;
  for (int64_t from = 0; from < columns; from += kBlock) {
    const int64_t n = std::min(kBlock, columns - from);
    double sums[2][kBlock] = {};
    for (int64_t k = 0; k < 2 * chunks; ++k) {
      for (int64_t i = 0; i < n; ++i)
        sums[k % 2][i] += static_cast<double>(scratch[k * columns + from + i]);
    }
    for (int64_t k = 0; k < 2 * chunks; ++k) {
      for (int64_t i = 0; used[k / 2] && i < n; ++i) sums[k % 2][i] += wide[k * columns + from + i];
    }
    for (int64_t i = 0; i < n; ++i) {
      dscale[from + i] = static_cast<float>(sums[0][i]);
      dbias[from + i] = static_cast<float>(sums[1][i]);
    }
  }
}

}  // namespace coracle::inline internal
#endif
