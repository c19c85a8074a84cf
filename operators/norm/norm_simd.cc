#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/norm/norm.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/norm/norm_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/norm/norm_simd-inl.h>
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

// --- sums ---

// Number of rows after which float sums are added to doubles.
constexpr int64_t kFlush = 256;

template <class E>
SumTerms TermsOf(const NormTermsOf<E>& t) {
  if (!t.dy) return kMoments;
  if (t.a) return kMaskedByX;
  return !t.y ? kGrad : t.masked ? kMaskedStored : kMasked;
}

// The parameters of sums; kMaskedByX uses a and b.
template <class Param>
struct SumParams {
  Param shift, a, b;
};

// Sums N vectors from channel c on, the last one with n lanes, over `rows` rows from element `at`
// on: sum += a and product += a (x - shift), where a is x - shift or dy.
template <SumTerms kTerms, int N, class Param, class E>
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
template <SumTerms kTerms, class Param, class E>
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

template <SumTerms kTerms, class E>
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

template <SumTerms kTerms, class E>
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
#undef CORACLE_LOOP_OF

// Whether the image is channels last, so that its pixels are rows of channels.
bool IsRows(const NormView& v) { return v.inner == 1; }

// Mean and variance of a channel whose squares or sums leave the range of a float, or that has a
// nan or an infinity.
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

// Whether all elements of channel c are one finite number.
template <class E>
bool IsConstant(const NormView& v, const E* x, int64_t c) {
  const auto first = static_cast<float>(x[v.At(c, 0)]);
  if (!std::isfinite(first)) return false;
  for (int64_t i = 1; i < v.size; ++i)
    if (static_cast<float>(x[v.At(c, i)]) != first) return false;
  return true;
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
  // Outside of these bounds, some squares may have left the range of a float.
  constexpr double kLeast = 1e-30, kMost = std::numeric_limits<double>::max();
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
      const bool held = std::isfinite(mean[c]) && variance[c] >= kLeast && variance[c] <= kMost;
      if (!held && !IsConstant(v, x, c)) WideMoments(v, x, c, mean + c, variance + c);
    }
  });
}

template void ChannelSums(const NormView&, const NormTermsOf<float>&, const float*, double*,
                          double*, double*);
template void ChannelMoments(const NormView&, const float*, double*, double*, double*);
template void ChannelSums(const NormView&, const NormTermsOf<bfloat16>&, const float*, double*,
                          double*, double*);
template void ChannelMoments(const NormView&, const bfloat16*, double*, double*, double*);

}  // namespace coracle::inline internal
#endif
