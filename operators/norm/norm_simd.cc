#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/norm/norm.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/norm/norm_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = FloatTag;
using V = FloatVec;
constexpr size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);

HWY_INLINE int64_t LanesOf() { return static_cast<int64_t>(hn::Lanes(D())); }

// Adds the first `n` lanes to doubles.
HWY_INLINE void AddTo(V v, double* sums, int64_t n) {
  HWY_ALIGN float lanes[kMaxLanes];
  hn::Store(v, D(), lanes);
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(lanes[i]);
}

// --- parameters of channels: for each element of a row its own, or one for a whole plane ---

struct OwnParam {
  static constexpr bool kSame = false;
  const float* p;
  HWY_INLINE V At(int64_t c, int64_t n) const { return LoadFirst(p + c, n); }
};
struct SameParam {
  static constexpr bool kSame = true;
  V v;
  HWY_INLINE V At(int64_t, int64_t n) const {
    return n >= LanesOf() ? v : hn::IfThenElseZero(hn::FirstN(D(), static_cast<size_t>(n)), v);
  }
};
HWY_INLINE SameParam Same(float value) { return {hn::Set(D(), value)}; }

// Rows of few channels are taken several at a time, as one row that is a multiple of four vectors:
// no partial vectors, and sums that do not wait for each other. Returns how many; 1 where that does
// not pay.
constexpr int64_t kRowUnit = 64, kMaxWidth = 1024;
HWY_INLINE int64_t RowsAtOnce(int64_t rows, int64_t channels) {
  const int64_t n = kRowUnit / std::gcd(channels, kRowUnit);
  return n <= rows && n * channels <= kMaxWidth ? n : 1;
}

// One parameter of such a row.
class WideParam {
 public:
  WideParam(const float* p, int64_t channels, int64_t copies) : p_(p) {
    if (copies == 1) return;
    for (int64_t i = 0; i < copies; ++i) std::copy_n(p, channels, wide_ + i * channels);
    p_ = wide_;
  }
  OwnParam get() const { return {p_}; }

 private:
  const float* p_;
  float wide_[kMaxWidth];
};

// --- sums ---

// Float sums are flushed into doubles every so many rows.
constexpr int64_t kFlush = 256;

enum Terms { kMoments, kGrad, kMasked, kMaskedStored };

// N vectors from channel c on, the last one of n lanes, over `rows` rows from element `at` on:
// sum += a and product += a (x - shift), where a is x - shift or dy.
template <Terms kTerms, int N, class Param>
HWY_INLINE void SumColumns(const NormTerms& t, int64_t at, int64_t rows, int64_t width, int64_t c,
                           int64_t n, const Param& shift, double* first, double* second) {
  const D d;
  const int64_t lanes = LanesOf();
  V k[N], sum[N], product[N];
  for (int i = 0; i < N; ++i) {
    k[i] = shift.At(c + i * lanes, n);
    sum[i] = product[i] = hn::Zero(d);
  }
  at += c;
  for (int64_t r = 0; r < rows; ++r, at += width) {
    for (int i = 0; i < N; ++i) {
      const int64_t e = at + i * lanes;
      const V x = hn::Sub(LoadFirst(t.x + e, n), k[i]);
      V a = x;
      if constexpr (kTerms != kMoments) a = LoadFirst(t.dy + e, n);
      if constexpr (kTerms >= kMasked)
        a = hn::IfThenElseZero(hn::Gt(LoadFirst(t.y + e, n), hn::Zero(d)), a);
      if constexpr (kTerms == kMaskedStored) StoreFirst(a, t.masked + e, n);
      sum[i] = hn::Add(sum[i], a);
      product[i] = hn::MulAdd(a, x, product[i]);
    }
  }
  if constexpr (Param::kSame) {
    for (int i = 1; i < N; ++i) {
      sum[0] = hn::Add(sum[0], sum[i]);
      product[0] = hn::Add(product[0], product[i]);
    }
    AddTo(sum[0], first, lanes);
    AddTo(product[0], second, lanes);
  } else {
    for (int i = 0; i < N; ++i) {
      AddTo(sum[i], first + c + i * lanes, n);
      AddTo(product[i], second + c + i * lanes, n);
    }
  }
}

// Over rows of `width` elements. Sums of one parameter for all are left in the lanes of one vector.
template <Terms kTerms, class Param>
HWY_INLINE void SumRows(const NormTerms& t, int64_t at, int64_t rows, int64_t width,
                        const Param& shift, double* first, double* second) {
  const int64_t lanes = LanesOf();
  for (int64_t begin = 0; begin < rows; begin += kFlush) {
    const int64_t count = std::min(rows - begin, kFlush), from = at + begin * width;
    int64_t c = 0;
    for (; c + 4 * lanes <= width; c += 4 * lanes)
      SumColumns<kTerms, 4>(t, from, count, width, c, lanes, shift, first, second);
    for (; c < width; c += lanes) {
      SumColumns<kTerms, 1>(t, from, count, width, c, std::min(lanes, width - c), shift, first,
                            second);
    }
  }
}

template <Terms kTerms>
void SumWideRows(const NormTerms& t, int64_t rows, int64_t channels, const float* shift,
                 double* first, double* second) {
  const int64_t copies = RowsAtOnce(rows, channels), width = copies * channels;
  int64_t done = 0;
  if (copies > 1) {
    const WideParam wide(shift, channels, copies);
    double sums[2 * kMaxWidth] = {};
    done = rows / copies * copies;
    SumRows<kTerms>(t, 0, rows / copies, width, wide.get(), sums, sums + width);
    for (int64_t i = 0; i < width; i += channels) {
      for (int64_t c = 0; c < channels; ++c) {
        first[c] += sums[i + c];
        second[c] += sums[width + i + c];
      }
    }
  }
  SumRows<kTerms>(t, done * channels, rows - done, channels, OwnParam{shift}, first, second);
}

template <Terms kTerms>
void SumPlane(const NormTerms& t, int64_t at, int64_t n, float shift, double* first,
              double* second) {
  double sums[kMaxLanes] = {}, products[kMaxLanes] = {};
  const int64_t width = 4 * LanesOf(), rows = n / width;
  SumRows<kTerms>(t, at, rows, width, Same(shift), sums, products);
  SumRows<kTerms>(t, at + rows * width, 1, n - rows * width, Same(shift), sums, products);
  for (int64_t l = 0; l < LanesOf(); ++l) {
    *first += sums[l];
    *second += products[l];
  }
}

// For channels last: over `rows` rows, first[c] += sum of a and second[c] += sum of
// a (x - shift[c]), where a is x - shift[c], or dy when given.
void RowSums(const NormTerms& t, int64_t rows, int64_t channels, const float* shift, double* first,
             double* second) {
  const auto sums = !t.dy      ? SumWideRows<kMoments>
                    : !t.y     ? SumWideRows<kGrad>
                    : t.masked ? SumWideRows<kMaskedStored>
                               : SumWideRows<kMasked>;
  sums(t, rows, channels, shift, first, second);
}

// The same for the `n` elements of one channel from `at` on.
void PlaneSums(const NormTerms& t, int64_t at, int64_t n, float shift, double* first,
               double* second) {
  const auto sums = !t.dy      ? SumPlane<kMoments>
                    : !t.y     ? SumPlane<kGrad>
                    : t.masked ? SumPlane<kMaskedStored>
                               : SumPlane<kMasked>;
  sums(t, at, n, shift, first, second);
}

// --- sweeps that write each element ---

// body(at, c, n) for vectors of n elements from `at` on, of the channels from c on.
template <class Body>
HWY_INLINE void ForVectors(int64_t at, int64_t rows, int64_t width, const Body& body) {
  const int64_t lanes = LanesOf();
  for (int64_t r = 0; r < rows; ++r, at += width) {
    int64_t c = 0;
    for (; c + lanes <= width; c += lanes) body(at + c, c, lanes);
    if (c < width) body(at + c, c, width - c);
  }
}

template <class Param, bool kAdd, bool kRelu>
struct Affine {
  const NormAffine& t;
  Param a, b;
  HWY_INLINE void operator()(int64_t at, int64_t c, int64_t n) const {
    V v = hn::MulAdd(LoadFirst(t.x + at, n), a.At(c, n), b.At(c, n));
    if constexpr (kAdd) v = hn::Add(v, LoadFirst(t.z + at, n));
    if constexpr (kRelu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(D())), v);
    StoreFirst(v, t.y + at, n);
  }
};
template <class Param>
HWY_INLINE void ApplyAffine(const NormAffine& t, int64_t at, int64_t rows, int64_t width, Param a,
                            Param b) {
  if (t.z && t.relu) return ForVectors(at, rows, width, Affine<Param, true, true>{t, a, b});
  if (t.z) return ForVectors(at, rows, width, Affine<Param, true, false>{t, a, b});
  if (t.relu) return ForVectors(at, rows, width, Affine<Param, false, true>{t, a, b});
  ForVectors(at, rows, width, Affine<Param, false, false>{t, a, b});
}

void RowsAffine(const NormAffine& t, int64_t at, int64_t rows, int64_t channels, const float* a,
                const float* b) {
  const int64_t copies = RowsAtOnce(rows, channels), wide = rows / copies;
  const WideParam wa(a, channels, copies), wb(b, channels, copies);
  ApplyAffine(t, at, wide, copies * channels, wa.get(), wb.get());
  const int64_t done = wide * copies;
  ApplyAffine(t, at + done * channels, rows - done, channels, OwnParam{a}, OwnParam{b});
}

void PlaneAffine(const NormAffine& t, int64_t at, int64_t n, float a, float b) {
  ApplyAffine(t, at, 1, n, Same(a), Same(b));
}

template <class Param, bool kMask>
struct Grad {
  const NormTerms& t;
  float* dx;
  Param mean, p, q, s;
  HWY_INLINE void operator()(int64_t at, int64_t c, int64_t n) const {
    V dy = LoadFirst(t.dy + at, n);
    if constexpr (kMask) dy = hn::IfThenElseZero(hn::Gt(LoadFirst(t.y + at, n), hn::Zero(D())), dy);
    const V d = hn::Sub(LoadFirst(t.x + at, n), mean.At(c, n));
    const V v = hn::MulAdd(d, q.At(c, n), s.At(c, n));
    StoreFirst(hn::MulAdd(dy, p.At(c, n), v), dx + at, n);
  }
};
template <class Param>
HWY_INLINE void ApplyGrad(const NormTerms& t, int64_t at, int64_t rows, int64_t width, Param mean,
                          Param p, Param q, Param s, float* dx) {
  if (t.y) return ForVectors(at, rows, width, Grad<Param, true>{t, dx, mean, p, q, s});
  ForVectors(at, rows, width, Grad<Param, false>{t, dx, mean, p, q, s});
}

void RowsGrad(const NormTerms& t, int64_t at, int64_t rows, int64_t channels, const float* mean,
              const float* p, const float* q, const float* s, float* dx) {
  const int64_t copies = RowsAtOnce(rows, channels), wide = rows / copies;
  const WideParam wm(mean, channels, copies), wp(p, channels, copies);
  const WideParam wq(q, channels, copies), ws(s, channels, copies);
  ApplyGrad(t, at, wide, copies * channels, wm.get(), wp.get(), wq.get(), ws.get(), dx);
  const int64_t done = wide * copies;
  ApplyGrad(t, at + done * channels, rows - done, channels, OwnParam{mean}, OwnParam{p},
            OwnParam{q}, OwnParam{s}, dx);
}

void PlaneGrad(const NormTerms& t, int64_t at, int64_t n, float mean, float p, float q, float s,
               float* dx) {
  ApplyGrad(t, at, 1, n, Same(mean), Same(p), Same(q), Same(s), dx);
}

// --- rows: layer_norm ---

// The sums of a row short enough for float sums.
constexpr int64_t kShortRow = 8192;
HWY_INLINE void ShortRowSums(const float* x, int64_t n, float shift, double* first,
                             double* second) {
  const D d;
  const V k = hn::Set(d, shift);
  const int64_t lanes = LanesOf();
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
  *first += s;
  *second += q;
}

HWY_INLINE void RowMoments(const float* x, int64_t n, float shift, double* first, double* second) {
  if (n <= kShortRow) return ShortRowSums(x, n, shift, first, second);
  NormTerms t;
  t.x = x;
  SumPlane<kMoments>(t, 0, n, shift, first, second);
}

// One row of layer_norm.
void NormRow(const float* x, int64_t n, const float* scale, const float* bias, float epsilon,
             float* y, float* mean, float* variance) {
  double sum = 0, none = 0, square = 0;
  RowMoments(x, n, x[0], &sum, &none);
  const float m = static_cast<float>(static_cast<double>(x[0]) + sum / static_cast<double>(n));
  sum = 0;
  RowMoments(x, n, m, &sum, &square);
  const double rest = sum / static_cast<double>(n);  // the rounding of m
  const float v = static_cast<float>(std::max(square / static_cast<double>(n) - rest * rest, 0.0));
  const float inv = 1.0f / std::sqrt(v + epsilon);
  *mean = m;
  *variance = v;
  const V vm = hn::Set(D(), m), vi = hn::Set(D(), inv), one = hn::Set(D(), 1.0f);
  for (int64_t i = 0; i < n; i += LanesOf()) {
    const V xh = hn::Mul(hn::Sub(LoadFirst(x + i, n - i), vm), vi);
    const V s = scale ? LoadFirst(scale + i, n - i) : one;
    const V b = bias ? LoadFirst(bias + i, n - i) : hn::Zero(D());
    StoreFirst(hn::MulAdd(xh, s, b), y + i, n - i);
  }
}

// What the gradient of layer_norm needs; dscale and dbias are added to, both null or neither.
struct RowGrads {
  const float *x, *dy, *scale;
  int64_t n;
  float *dx, *dscale, *dbias;
};

HWY_INLINE V MeanOfLanes(V v, int64_t n) {
  HWY_ALIGN float lanes[kMaxLanes];
  hn::Store(v, D(), lanes);
  double sum = 0;
  for (int64_t l = 0; l < LanesOf(); ++l) sum += static_cast<double>(lanes[l]);
  return hn::Set(D(), static_cast<float>(sum / static_cast<double>(n)));
}

// R rows of layer_norm's gradient, from element `at` on.
template <int R>
HWY_INLINE void NormGradRows(const RowGrads& g, int64_t at, const double* mean, const double* inv) {
  const int64_t n = g.n, lanes = LanesOf();
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
    StoreFirst(hn::Add(dscale, LoadFirst(g.dscale + c, k)), g.dscale + c, k);
    StoreFirst(hn::Add(dbias, LoadFirst(g.dbias + c, k)), g.dbias + c, k);
  };
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) first(c, lanes);
  if (c < n) first(c, n - c);
  if (!g.dx) return;
  for (int r = 0; r < R; ++r) {
    sum[r] = MeanOfLanes(sum[r], n);
    along[r] = MeanOfLanes(along[r], n);
  }
  const auto second = [&](int64_t c, int64_t k) HWY_ATTR {
    const V scale = g.scale ? LoadFirst(g.scale + c, k) : one;
    for (int r = 0; r < R; ++r) {
      const int64_t e = at + r * n + c;
      const V xh = hn::Mul(hn::Sub(LoadFirst(g.x + e, k), m[r]), v[r]);
      const V s = hn::Sub(hn::Mul(LoadFirst(g.dy + e, k), scale), sum[r]);
      StoreFirst(hn::Mul(v[r], hn::NegMulAdd(xh, along[r], s)), g.dx + e, k);
    }
  };
  for (c = 0; c + lanes <= n; c += lanes) second(c, lanes);
  if (c < n) second(c, n - c);
}

// Several rows at a time, so that the sums for scale and bias are seldom loaded and stored.
void NormGradPart(const float* x, const float* dy, int64_t rows, int64_t n, const float* scale,
                  const double* mean, const double* inv, float* dx, float* dscale, float* dbias) {
  constexpr int kRows = 4;
  const RowGrads g{x, dy, scale, n, dx, dscale, dbias};
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) NormGradRows<kRows>(g, r * n, mean + r, inv + r);
  for (; r < rows; ++r) NormGradRows<1>(g, r * n, mean + r, inv + r);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle {
namespace {

HWY_EXPORT(RowSums);
HWY_EXPORT(PlaneSums);
HWY_EXPORT(RowsAffine);
HWY_EXPORT(PlaneAffine);
HWY_EXPORT(RowsGrad);
HWY_EXPORT(PlaneGrad);
HWY_EXPORT(NormRow);
HWY_EXPORT(NormGradPart);

// Rows are summed in chunks whose number depends on the shape alone, so that neither threads nor
// their number change a sum.
constexpr int64_t kMaxChunks = 32;
int64_t ChunksOf(int64_t rows, int64_t row_size) {
  return std::clamp<int64_t>(rows * row_size / 16384, 1, std::min(kMaxChunks, rows));
}

// A channels-last image as rows of channels.
bool IsRows(const NormView& v) { return v.inner == 1; }

// rows(first row, number) over blocks of rows, or plane(channel, offset) over planes. Rows are
// taken from the last ones on: those are what the sweep before has left in the cache.
template <class Rows, class Plane>
void ForBlocks(const NormView& v, Rows&& rows, Plane&& plane) {
  const int64_t block = 1 + 32768 / (1 + (IsRows(v) ? v.groups : v.inner));
  if (IsRows(v)) {
    ParallelFor(v.size, block, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t n = std::min(end - begin, block);
        end -= n;
        rows(end, n);
      }
    });
    return;
  }
  const int64_t planes = v.groups * (v.size / v.inner);
  ParallelFor(planes, block, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      plane(p % v.groups, v.At(p % v.groups, p / v.groups * v.inner));
  });
}

}  // namespace

int64_t ChannelScratch(const NormView& v) {
  // The chunks' sums, and the shifts of ChannelMoments.
  return (IsRows(v) ? ChunksOf(v.size, v.groups) * 2 * v.groups : 0) + v.groups;
}

void ChannelSums(const NormView& v, const NormTerms& t, const float* shift, double* scratch,
                 double* first, double* second) {
  const int64_t channels = v.groups;
  if (!IsRows(v)) {
    const auto sums = HWY_DYNAMIC_DISPATCH(PlaneSums);
    ParallelFor(channels, 1 + 32768 / (1 + v.size), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        first[c] = second[c] = 0;
        for (int64_t i = 0; i < v.size; i += v.inner)
          sums(t, v.At(c, i), v.inner, shift[c], first + c, second + c);
      }
    });
    return;
  }
  const auto sums = HWY_DYNAMIC_DISPATCH(RowSums);
  const int64_t chunks = ChunksOf(v.size, channels);
  ParallelFor(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      double* own = scratch + 2 * k * channels;
      std::fill(own, own + 2 * channels, 0.0);
      const int64_t from = v.size * k / chunks, to = v.size * (k + 1) / chunks;
      sums(t.From(from * channels), to - from, channels, shift, own, own + channels);
    }
  });
  for (int64_t c = 0; c < channels; ++c) first[c] = second[c] = 0;
  for (int64_t k = 0; k < chunks; ++k) {
    const double* own = scratch + 2 * k * channels;
    for (int64_t c = 0; c < channels; ++c) {
      first[c] += own[c];
      second[c] += own[channels + c];
    }
  }
}

// Sums of x - x[0], not of x: the variance keeps its digits when the mean is far from zero. They
// are taken again about the mean where x[0] is far from it, as the sums of the first time have lost
// digits then.
void ChannelMoments(const NormView& v, const float* x, double* scratch, double* mean,
                    double* variance) {
  constexpr double kFar = 16;  // a square of a distance, in variances: rarely met
  float* shift = reinterpret_cast<float*>(scratch);
  for (int64_t c = 0; c < v.groups; ++c) shift[c] = x[v.At(c, 0)];
  const double n = static_cast<double>(v.size);
  NormTerms terms;
  terms.x = x;
  bool far = true;
  for (int pass = 0; pass < 2 && far; ++pass) {
    ChannelSums(v, terms, shift, scratch + v.groups, mean, variance);
    far = false;
    for (int64_t c = 0; c < v.groups; ++c) {
      const double d = mean[c] / n;
      variance[c] = std::max(variance[c] / n - d * d, 0.0);
      mean[c] = static_cast<double>(shift[c]) + d;
      if (pass == 1 || !(d * d > kFar * variance[c])) continue;
      shift[c] = static_cast<float>(mean[c]);  // the other groups' sums come out as before
      far = true;
    }
  }
}

void ChannelAffine(const NormView& v, const NormAffine& t, const float* a, const float* b) {
  const auto rows = HWY_DYNAMIC_DISPATCH(RowsAffine);
  const auto plane = HWY_DYNAMIC_DISPATCH(PlaneAffine);
  ForBlocks(
      v, [&](int64_t first, int64_t n) { rows(t, first * v.groups, n, v.groups, a, b); },
      [&](int64_t c, int64_t at) { plane(t, at, v.inner, a[c], b[c]); });
}

void ChannelGradApply(const NormView& v, const NormTerms& t, const float* mean, const float* p,
                      const float* q, const float* r, float* dx) {
  const auto rows = HWY_DYNAMIC_DISPATCH(RowsGrad);
  const auto plane = HWY_DYNAMIC_DISPATCH(PlaneGrad);
  ForBlocks(
      v,
      [&](int64_t first, int64_t n) { rows(t, first * v.groups, n, v.groups, mean, p, q, r, dx); },
      [&](int64_t c, int64_t at) { plane(t, at, v.inner, mean[c], p[c], q[c], r[c], dx); });
}

void RowNorm(int64_t rows, int64_t columns, const float* x, const float* scale, const float* bias,
             float epsilon, float* y, float* mean, float* variance) {
  const auto norm = HWY_DYNAMIC_DISPATCH(NormRow);
  ParallelFor(rows, 1 + 16384 / (1 + columns), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      norm(x + r * columns, columns, scale, bias, epsilon, y + r * columns, mean + r, variance + r);
    }
  });
}

int64_t RowScratch(int64_t rows, int64_t columns) { return ChunksOf(rows, columns) * 2 * columns; }

void RowNormGrad(int64_t rows, int64_t columns, const float* x, const float* scale, const float* dy,
                 const double* mean, const double* inv, float* scratch, float* dx, float* dscale,
                 float* dbias) {
  const auto grad = HWY_DYNAMIC_DISPATCH(NormGradPart);
  const int64_t chunks = ChunksOf(rows, columns);
  ParallelFor(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      float* own = dscale ? scratch + 2 * k * columns : nullptr;
      if (own) std::fill(own, own + 2 * columns, 0.0f);
      const int64_t first = rows * k / chunks, at = first * columns;
      grad(x + at, dy + at, rows * (k + 1) / chunks - first, columns, scale, mean + first,
           inv + first, dx ? dx + at : nullptr, own, own ? own + columns : nullptr);
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
    for (int64_t i = 0; i < n; ++i) {
      dscale[from + i] = static_cast<float>(sums[0][i]);
      dbias[from + i] = static_cast<float>(sums[1][i]);
    }
  }
}

}  // namespace coracle
#endif
