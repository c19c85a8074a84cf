#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/norm/norm.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/norm/norm_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd_half-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = FloatTag;
using V = FloatVec;

// Adds the first `n` lanes to doubles.
HWY_INLINE void AddTo(V v, double* sums, int64_t n) {
  HWY_ALIGN float lanes[kMaxFloatLanes];
  hn::Store(v, D(), lanes);
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(lanes[i]);
}

// --- parameters of channels: one for each element of a row, or one for a whole plane ---

struct OwnParam {
  static constexpr bool kSame = false;
  const float* p;
  HWY_INLINE V At(int64_t c, int64_t n) const { return LoadFirst(p + c, n); }
};
struct SameParam {
  static constexpr bool kSame = true;
  V v;
  HWY_INLINE V At(int64_t, int64_t n) const {
    return n >= FloatLanes() ? v : hn::IfThenElseZero(hn::FirstN(D(), static_cast<size_t>(n)), v);
  }
};
HWY_INLINE SameParam Same(float value) { return {hn::Set(D(), value)}; }

// Several rows of few channels are processed as one row whose length is a multiple of four vectors,
// which avoids partial vectors and dependent sums. Returns the number of rows; 1 if that does
// not pay.
constexpr int64_t kRowUnit = 64, kMaxWidth = 1024;
HWY_INLINE int64_t RowsAtOnce(int64_t rows, int64_t channels) {
  const int64_t n = kRowUnit / std::gcd(channels, kRowUnit);
  return n <= rows && n * channels <= kMaxWidth ? n : 1;
}

// A parameter of such a row.
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

// Number of rows after which float sums are added to doubles.
constexpr int64_t kFlush = 256;

enum Terms { kMoments, kGrad, kMaskedByX, kMasked, kMaskedStored };
template <class E>
Terms TermsOf(const NormTermsOf<E>& t) {
  if (!t.dy) return kMoments;
  if (t.a) return kMaskedByX;
  return !t.y ? kGrad : t.masked ? kMaskedStored : kMasked;
}

// The parameters of sums; kMaskedByX uses a and b.
template <class Param>
struct SumParams {
  Param shift, a, b;
};

// dy of the elements from e on, or 0 where it is ignored; x is X - shift.
template <Terms kTerms, class E>
HWY_INLINE V Masked(const NormTermsOf<E>& t, int64_t e, int64_t n, V x, V a, V b) {
  const V dy = LoadFirst(t.dy + e, n), zero = hn::Zero(D());
  if constexpr (kTerms == kMaskedByX)
    return hn::IfThenZeroElse(hn::Le(hn::MulAdd(x, a, b), zero), dy);
  if constexpr (kTerms >= kMasked)
    return hn::IfThenZeroElse(hn::Le(LoadFirst(t.y + e, n), zero), dy);
  return dy;
}

// Sums N vectors from channel c on, the last one with n lanes, over `rows` rows from element `at`
// on: sum += a and product += a (x - shift), where a is x - shift or dy.
template <Terms kTerms, int N, class Param, class E>
HWY_INLINE void SumColumns(const NormTermsOf<E>& t, int64_t at, int64_t rows, int64_t width,
                           int64_t c, int64_t n, const SumParams<Param>& p, double* first,
                           double* second) {
  const D d;
  const int64_t lanes = FloatLanes();
  V k[N], ma[N], mb[N], sum[N], product[N];
  for (int i = 0; i < N; ++i) {
    k[i] = p.shift.At(c + i * lanes, n);
    ma[i] = kTerms == kMaskedByX ? p.a.At(c + i * lanes, n) : k[i];
    mb[i] = kTerms == kMaskedByX ? p.b.At(c + i * lanes, n) : k[i];
    sum[i] = product[i] = hn::Zero(d);
  }
  at += c;
  for (int64_t r = 0; r < rows; ++r, at += width) {
    for (int i = 0; i < N; ++i) {
      const int64_t e = at + i * lanes;
      const V x = hn::Sub(LoadFirst(t.x + e, n), k[i]);
      V a = x;
      if constexpr (kTerms != kMoments) a = Masked<kTerms>(t, e, n, x, ma[i], mb[i]);
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

// Sums over rows of `width` elements. With one parameter for all, the sums remain in the lanes of
// one vector.
template <Terms kTerms, class Param, class E>
HWY_INLINE void SumRows(const NormTermsOf<E>& t, int64_t at, int64_t rows, int64_t width,
                        const SumParams<Param>& p, double* first, double* second) {
  const int64_t lanes = FloatLanes();
  for (int64_t begin = 0; begin < rows; begin += kFlush) {
    const int64_t count = std::min(rows - begin, kFlush), from = at + begin * width;
    int64_t c = 0;
    for (; c + 4 * lanes <= width; c += 4 * lanes)
      SumColumns<kTerms, 4>(t, from, count, width, c, lanes, p, first, second);
    for (; c < width; c += lanes) {
      SumColumns<kTerms, 1>(t, from, count, width, c, std::min(lanes, width - c), p, first, second);
    }
  }
}

template <Terms kTerms, class E>
void SumWideRows(const NormTermsOf<E>& t, int64_t rows, int64_t channels, const float* shift,
                 double* first, double* second) {
  const int64_t copies = RowsAtOnce(rows, channels), width = copies * channels;
  int64_t done = 0;
  if (copies > 1) {
    const WideParam wide(shift, channels, copies), a(t.a ? t.a : shift, channels, copies);
    const WideParam b(t.a ? t.b : shift, channels, copies);
    double sums[2 * kMaxWidth] = {};
    done = rows / copies * copies;
    SumRows<kTerms, OwnParam>(t, 0, rows / copies, width, {wide.get(), a.get(), b.get()}, sums,
                              sums + width);
    for (int64_t i = 0; i < width; i += channels) {
      for (int64_t c = 0; c < channels; ++c) {
        first[c] += sums[i + c];
        second[c] += sums[width + i + c];
      }
    }
  }
  SumRows<kTerms, OwnParam>(t, done * channels, rows - done, channels, {{shift}, {t.a}, {t.b}},
                            first, second);
}

template <Terms kTerms, class E>
void SumPlane(const NormTermsOf<E>& t, int64_t c, int64_t at, int64_t n, float shift, double* first,
              double* second) {
  const SumParams<SameParam> p{Same(shift), Same(t.a ? t.a[c] : 0), Same(t.a ? t.b[c] : 0)};
  double sums[kMaxFloatLanes] = {}, products[kMaxFloatLanes] = {};
  const int64_t width = 4 * FloatLanes(), rows = n / width;
  SumRows<kTerms>(t, at, rows, width, p, sums, products);
  SumRows<kTerms>(t, at + rows * width, 1, n - rows * width, p, sums, products);
  for (int64_t l = 0; l < FloatLanes(); ++l) {
    *first += sums[l];
    *second += products[l];
  }
}

// For channels last: over `rows` rows, first[c] += sum of a and second[c] += sum of a (x -
// shift[c]), where a is dy if given, else x - shift[c].
template <class E>
void RowSumsOf(const NormTermsOf<E>& t, int64_t rows, int64_t channels, const float* shift,
               double* first, double* second) {
  constexpr decltype(&SumWideRows<kMoments, E>) kSums[] = {
      SumWideRows<kMoments, E>, SumWideRows<kGrad, E>, SumWideRows<kMaskedByX, E>,
      SumWideRows<kMasked, E>, SumWideRows<kMaskedStored, E>};
  kSums[TermsOf(t)](t, rows, channels, shift, first, second);
}

// Computes the sums of RowSumsOf for the `n` elements of channel c from `at` on.
template <class E>
void PlaneSumsOf(const NormTermsOf<E>& t, int64_t c, int64_t at, int64_t n, float shift,
                 double* first, double* second) {
  constexpr decltype(&SumPlane<kMoments, E>) kSums[] = {
      SumPlane<kMoments, E>, SumPlane<kGrad, E>, SumPlane<kMaskedByX, E>, SumPlane<kMasked, E>,
      SumPlane<kMaskedStored, E>};
  kSums[TermsOf(t)](t, c, at, n, shift, first, second);
}

// --- sweeps that write each element ---

// Calls body(at, c, n) for vectors of n elements from `at` on, of the channels from c on.
template <class Body>
HWY_INLINE void ForVectors(int64_t at, int64_t rows, int64_t width, const Body& body) {
  const int64_t lanes = FloatLanes();
  for (int64_t r = 0; r < rows; ++r, at += width) {
    int64_t c = 0;
    for (; c + lanes <= width; c += lanes) body(at + c, c, lanes);
    if (c < width) body(at + c, c, width - c);
  }
}

template <class E, class Param, bool kAdd, bool kRelu>
struct Affine {
  const NormAffineOf<E>& t;
  Param shift, a, b;
  HWY_INLINE void operator()(int64_t at, int64_t c, int64_t n) const {
    const V x = hn::Sub(LoadFirst(t.x + at, n), shift.At(c, n));
    V v = hn::MulAdd(x, a.At(c, n), b.At(c, n));
    if constexpr (kAdd) v = hn::Add(v, LoadFirst(t.z + at, n));
    if constexpr (kRelu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(D())), v);
    StoreFirst(v, t.y + at, n);
  }
};
template <class E, class Param>
HWY_INLINE void ApplyAffine(const NormAffineOf<E>& t, int64_t at, int64_t rows, int64_t width,
                            Param s, Param a, Param b) {
  if (t.z && t.relu) return ForVectors(at, rows, width, Affine<E, Param, true, true>{t, s, a, b});
  if (t.z) return ForVectors(at, rows, width, Affine<E, Param, true, false>{t, s, a, b});
  if (t.relu) return ForVectors(at, rows, width, Affine<E, Param, false, true>{t, s, a, b});
  ForVectors(at, rows, width, Affine<E, Param, false, false>{t, s, a, b});
}

template <class E>
void RowsAffineOf(const NormAffineOf<E>& t, int64_t at, int64_t rows, int64_t channels,
                  const float* shift, const float* a, const float* b) {
  const int64_t copies = RowsAtOnce(rows, channels), wide = rows / copies;
  const WideParam ws(shift, channels, copies), wa(a, channels, copies), wb(b, channels, copies);
  ApplyAffine(t, at, wide, copies * channels, ws.get(), wa.get(), wb.get());
  const int64_t done = wide * copies;
  ApplyAffine(t, at + done * channels, rows - done, channels, OwnParam{shift}, OwnParam{a},
              OwnParam{b});
}

template <class E>
void PlaneAffineOf(const NormAffineOf<E>& t, int64_t at, int64_t n, float shift, float a, float b) {
  ApplyAffine(t, at, 1, n, Same(shift), Same(a), Same(b));
}

// The parameters of ChannelGradApply and of NormTerms.
template <class Param>
struct GradParams {
  Param mean, p, q, r, a, b;
};
template <class E, class Param, Terms kTerms>
struct Grad {
  const NormTermsOf<E>& t;
  const GradParams<Param>& p;
  E* dx;
  HWY_INLINE void operator()(int64_t at, int64_t c, int64_t n) const {
    const V d = hn::Sub(LoadFirst(t.x + at, n), p.mean.At(c, n));
    V a = d, b = d;
    if constexpr (kTerms == kMaskedByX) {
      a = p.a.At(c, n);
      b = p.b.At(c, n);
    }
    const V dy = Masked<kTerms>(t, at, n, d, a, b);
    const V v = hn::MulAdd(d, p.q.At(c, n), p.r.At(c, n));
    StoreFirst(hn::MulAdd(dy, p.p.At(c, n), v), dx + at, n);
  }
};
template <class E, class Param>
HWY_INLINE void ApplyGrad(const NormTermsOf<E>& t, int64_t at, int64_t rows, int64_t width,
                          const GradParams<Param>& p, E* dx) {
  if (t.a) return ForVectors(at, rows, width, Grad<E, Param, kMaskedByX>{t, p, dx});
  if (t.y) return ForVectors(at, rows, width, Grad<E, Param, kMasked>{t, p, dx});
  ForVectors(at, rows, width, Grad<E, Param, kGrad>{t, p, dx});
}

template <class E>
void RowsGradOf(const NormTermsOf<E>& t, int64_t at, int64_t rows, int64_t channels,
                const float* mean, const float* p, const float* q, const float* r, E* dx) {
  const int64_t copies = RowsAtOnce(rows, channels), wide = rows / copies;
  const float *ta = t.a ? t.a : p, *tb = t.a ? t.b : p;
  const WideParam wm(mean, channels, copies), wp(p, channels, copies), wq(q, channels, copies);
  const WideParam wr(r, channels, copies), wa(ta, channels, copies), wb(tb, channels, copies);
  const GradParams<OwnParam> own{{mean}, {p}, {q}, {r}, {ta}, {tb}};
  const GradParams<OwnParam> several{wm.get(), wp.get(), wq.get(), wr.get(), wa.get(), wb.get()};
  ApplyGrad(t, at, wide, copies * channels, several, dx);
  const int64_t done = wide * copies;
  ApplyGrad(t, at + done * channels, rows - done, channels, own, dx);
}

template <class E>
void PlaneGradOf(const NormTermsOf<E>& t, int64_t c, int64_t at, int64_t n, float mean, float p,
                 float q, float r, E* dx) {
  const GradParams<SameParam> same{
      Same(mean), Same(p), Same(q), Same(r), Same(t.a ? t.a[c] : 0), Same(t.a ? t.b[c] : 0)};
  ApplyGrad(t, at, 1, n, same, dx);
}

// The functions that are dispatched, for float and for bfloat16.
void RowSums(const NormTermsOf<float>& t, int64_t rows, int64_t channels, const float* shift,
             double* first, double* second) {
  RowSumsOf<float>(t, rows, channels, shift, first, second);
}
void RowSumsHalf(const NormTermsOf<bfloat16>& t, int64_t rows, int64_t channels, const float* shift,
                 double* first, double* second) {
  RowSumsOf<bfloat16>(t, rows, channels, shift, first, second);
}
void PlaneSums(const NormTermsOf<float>& t, int64_t c, int64_t at, int64_t n, float shift,
               double* first, double* second) {
  PlaneSumsOf<float>(t, c, at, n, shift, first, second);
}
void PlaneSumsHalf(const NormTermsOf<bfloat16>& t, int64_t c, int64_t at, int64_t n, float shift,
                   double* first, double* second) {
  PlaneSumsOf<bfloat16>(t, c, at, n, shift, first, second);
}
void RowsAffine(const NormAffineOf<float>& t, int64_t at, int64_t rows, int64_t channels,
                const float* shift, const float* a, const float* b) {
  RowsAffineOf<float>(t, at, rows, channels, shift, a, b);
}
void RowsAffineHalf(const NormAffineOf<bfloat16>& t, int64_t at, int64_t rows, int64_t channels,
                    const float* shift, const float* a, const float* b) {
  RowsAffineOf<bfloat16>(t, at, rows, channels, shift, a, b);
}
void PlaneAffine(const NormAffineOf<float>& t, int64_t at, int64_t n, float shift, float a,
                 float b) {
  PlaneAffineOf<float>(t, at, n, shift, a, b);
}
void PlaneAffineHalf(const NormAffineOf<bfloat16>& t, int64_t at, int64_t n, float shift, float a,
                     float b) {
  PlaneAffineOf<bfloat16>(t, at, n, shift, a, b);
}
void RowsGrad(const NormTermsOf<float>& t, int64_t at, int64_t rows, int64_t channels,
              const float* mean, const float* p, const float* q, const float* r, float* dx) {
  RowsGradOf<float>(t, at, rows, channels, mean, p, q, r, dx);
}
void RowsGradHalf(const NormTermsOf<bfloat16>& t, int64_t at, int64_t rows, int64_t channels,
                  const float* mean, const float* p, const float* q, const float* r, bfloat16* dx) {
  RowsGradOf<bfloat16>(t, at, rows, channels, mean, p, q, r, dx);
}
void PlaneGrad(const NormTermsOf<float>& t, int64_t c, int64_t at, int64_t n, float mean, float p,
               float q, float r, float* dx) {
  PlaneGradOf<float>(t, c, at, n, mean, p, q, r, dx);
}
void PlaneGradHalf(const NormTermsOf<bfloat16>& t, int64_t c, int64_t at, int64_t n, float mean,
                   float p, float q, float r, bfloat16* dx) {
  PlaneGradOf<bfloat16>(t, c, at, n, mean, p, q, r, dx);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(RowSums);
HWY_EXPORT(RowSumsHalf);
HWY_EXPORT(PlaneSums);
HWY_EXPORT(PlaneSumsHalf);
HWY_EXPORT(RowsAffine);
HWY_EXPORT(RowsAffineHalf);
HWY_EXPORT(PlaneAffine);
HWY_EXPORT(PlaneAffineHalf);
HWY_EXPORT(RowsGrad);
HWY_EXPORT(RowsGradHalf);
HWY_EXPORT(PlaneGrad);
HWY_EXPORT(PlaneGradHalf);

// The loop for elements of type E.
#define CORACLE_LOOP_OF(NAME)                  \
  template <class E>                           \
  auto NAME##Loop() {                          \
    if constexpr (std::is_same_v<E, float>)    \
      return HWY_DYNAMIC_DISPATCH(NAME);       \
    else                                       \
      return HWY_DYNAMIC_DISPATCH(NAME##Half); \
  }
CORACLE_LOOP_OF(RowSums)
CORACLE_LOOP_OF(PlaneSums)
CORACLE_LOOP_OF(RowsAffine)
CORACLE_LOOP_OF(PlaneAffine)
CORACLE_LOOP_OF(RowsGrad)
CORACLE_LOOP_OF(PlaneGrad)
#undef CORACLE_LOOP_OF

// Whether the image is channels last, so that its pixels are rows of channels.
bool IsRows(const NormView& v) { return v.inner == 1; }

// Calls rows(first row, number) for blocks of rows, or plane(channel, offset) for planes. Starts
// with the last rows, which the previous sweep has left in the cache.
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

// Mean and variance of a channel whose squares or sums overflow a float, or that has a nan or
// an infinity.
template <class E>
void WideMoments(const NormView& v, const E* x, int64_t c, double* mean, double* variance) {
  const double n = static_cast<double>(v.size);
  double sum = 0, square = 0;
  for (int64_t i = 0; i < v.size; ++i)
    sum += static_cast<double>(static_cast<float>(x[v.At(c, i)]));
  *mean = sum / n;
  for (int64_t i = 0; i < v.size && std::isfinite(sum); ++i) {
    const double d = static_cast<double>(static_cast<float>(x[v.At(c, i)])) - *mean;
    square += d * d;
  }
  *variance = std::isfinite(sum) ? square / n : std::numeric_limits<double>::quiet_NaN();
}

// Sums of a channel whose products overflow a float, or that has a nan or an infinity.
template <class E>
void WideSums(const NormView& v, const NormTermsOf<E>& t, int64_t c, float shift, double* first,
              double* second) {
  *first = *second = 0;
  for (int64_t i = 0; i < v.size; ++i) {
    const int64_t at = v.At(c, i);
    if (t.Ignores(c, at, shift)) continue;
    const double dy = double{static_cast<float>(t.dy[at])};
    *first += dy;
    *second += dy * (double{static_cast<float>(t.x[at])} - double{shift});
  }
}
template <class E>
void RepairSums(const NormView& v, const NormTermsOf<E>& t, const float* shift, double* first,
                double* second) {
  for (int64_t c = 0; t.dy && c < v.groups; ++c) {
    if (!(std::isfinite(first[c]) && std::isfinite(second[c])))
      WideSums(v, t, c, shift[c], first + c, second + c);
  }
}

}  // namespace

int64_t ChannelScratch(const NormView& v) {
  // The chunks' sums, and the shifts of ChannelMoments.
  return (IsRows(v) ? NormChunks(v.size, v.groups) * 2 * v.groups : 0) + v.groups;
}

template <class E>
void ChannelSums(const NormView& v, const NormTermsOf<E>& t, const float* shift, double* scratch,
                 double* first, double* second) {
  const int64_t channels = v.groups;
  if (!IsRows(v)) {
    const auto sums = PlaneSumsLoop<E>();
    ParallelFor(channels, 1 + 32768 / (1 + v.size), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        first[c] = second[c] = 0;
        for (int64_t i = 0; i < v.size; i += v.inner)
          sums(t, c, v.At(c, i), v.inner, shift[c], first + c, second + c);
      }
    });
    return RepairSums(v, t, shift, first, second);
  }
  const auto sums = RowSumsLoop<E>();
  const int64_t chunks = NormChunks(v.size, channels);
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
  RepairSums(v, t, shift, first, second);
}

// Sums x - x[0] instead of x, so that the variance keeps its digits if the mean is far from zero.
// If x[0] is far from the mean, digits are lost, and the sums are computed again about the mean.
template <class E>
void ChannelMoments(const NormView& v, const E* x, double* scratch, double* mean,
                    double* variance) {
  constexpr double kFar = 16;  // a squared distance in variances, rarely reached
  float* shift = reinterpret_cast<float*>(scratch);
  for (int64_t c = 0; c < v.groups; ++c) shift[c] = static_cast<float>(x[v.At(c, 0)]);
  const double n = static_cast<double>(v.size);
  NormTermsOf<E> terms;
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
      shift[c] = static_cast<float>(mean[c]);  // the sums of the other groups do not change
      far = true;
    }
  }
  ParallelFor(v.groups, 1 + 32768 / (1 + v.size), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      if (!(std::isfinite(mean[c]) && std::isfinite(variance[c])))
        WideMoments(v, x, c, mean + c, variance + c);
    }
  });
}

template <class E>
void ChannelAffine(const NormView& v, const NormAffineOf<E>& t, const float* shift, const float* a,
                   const float* b) {
  const auto rows = RowsAffineLoop<E>();
  const auto plane = PlaneAffineLoop<E>();
  ForBlocks(
      v, [&](int64_t first, int64_t n) { rows(t, first * v.groups, n, v.groups, shift, a, b); },
      [&](int64_t c, int64_t at) { plane(t, at, v.inner, shift[c], a[c], b[c]); });
}

template <class E>
void ChannelGradApply(const NormView& v, const NormTermsOf<E>& t, const float* mean, const float* p,
                      const float* q, const float* r, E* dx) {
  const auto rows = RowsGradLoop<E>();
  const auto plane = PlaneGradLoop<E>();
  ForBlocks(
      v,
      [&](int64_t first, int64_t n) { rows(t, first * v.groups, n, v.groups, mean, p, q, r, dx); },
      [&](int64_t c, int64_t at) { plane(t, c, at, v.inner, mean[c], p[c], q[c], r[c], dx); });
}

template void ChannelSums(const NormView&, const NormTermsOf<float>&, const float*, double*,
                          double*, double*);
template void ChannelMoments(const NormView&, const float*, double*, double*, double*);
template void ChannelAffine(const NormView&, const NormAffineOf<float>&, const float*, const float*,
                            const float*);
template void ChannelGradApply(const NormView&, const NormTermsOf<float>&, const float*,
                               const float*, const float*, const float*, float*);
template void ChannelSums(const NormView&, const NormTermsOf<bfloat16>&, const float*, double*,
                          double*, double*);
template void ChannelMoments(const NormView&, const bfloat16*, double*, double*, double*);
template void ChannelAffine(const NormView&, const NormAffineOf<bfloat16>&, const float*,
                            const float*, const float*);
template void ChannelGradApply(const NormView&, const NormTermsOf<bfloat16>&, const float*,
                               const float*, const float*, const float*, bfloat16*);

}  // namespace coracle::inline internal
#endif
