#include <coracle/operators/kernels/softmax.h>

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/kernels/softmax_simd.cc"

// clang-format off
#include <hwy/foreach_target.h>  // first: it compiles this file for each target
#include <hwy/highway.h>
#include <hwy/cache_control.h>
#include <coracle/operators/kernels/simd-inl.h>
#include <coracle/operators/kernels/simd_math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using simd::HWY_NAMESPACE::ExpNonPositive;

// Replaces the lanes from `count` on by `fill`.
HWY_INLINE V Fill(D d, V v, int64_t count, float fill) {
  return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count)), v, hn::Set(d, fill));
}

HWY_INLINE float RowMax(D d, const float* x, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  V a = hn::Set(d, kLowest), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Max(a, hn::LoadU(d, x + i));
    b = hn::Max(b, hn::LoadU(d, x + i + lanes));
    c = hn::Max(c, hn::LoadU(d, x + i + 2 * lanes));
    e = hn::Max(e, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a = hn::Max(a, hn::LoadU(d, x + i));
  if (i < n) b = hn::Max(b, Fill(d, LoadFirst(x + i, n - i), n - i, kLowest));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e))));
}

// The sum of e_i = exp(x_i - max), which are stored in y with kStore. Prefetches the next
// row, `next`.
template <bool kStore>
HWY_INLINE float ExpSum(D d, const float* x, float* y, int64_t n, float max, const float* next) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V vmax = hn::Set(d, max);
  V a = hn::Zero(d), b = a;
  const auto step = [&](int64_t i, V* sum) {
    if (next) __builtin_prefetch(next + i, 0, 2);
    const V e = ExpNonPositive(hn::Sub(hn::LoadU(d, x + i), vmax));
    if constexpr (kStore) hn::StoreU(e, d, y + i);
    *sum = hn::Add(*sum, e);
  };
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    step(i, &a);
    step(i + lanes, &b);
  }
  if (i + lanes <= n) {
    step(i, &a);
    i += lanes;
  }
  if (i < n) {
    // The tail is cut off after the exponential instead of being filled with -inf before it: -inf
    // minus a max of -inf is nan, which would reach the sum.
    const V e = ExpNonPositive(hn::Sub(LoadFirst(x + i, n - i), vmax));
    if constexpr (kStore) StoreFirst(e, y + i, n - i);
    b = hn::Add(b, Fill(d, e, n - i, 0.0f));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

LineStats<float> ExpSumRow(const float* x, int64_t n, const float* next) {
  const D d;
  const float max = RowMax(d, x, n);
  return {max, ExpSum<false>(d, x, nullptr, n, max, next)};
}

// y = factor * e.
HWY_INLINE void ScaleRow(D d, const float* e, float factor, float* y, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V v = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, e + i), v), d, y + i);
  if (i < n) StoreFirst(hn::Mul(LoadFirst(e + i, n - i), v), y + i, n - i);
}
// Like ScaleRow, but writes past the caches.
HWY_INLINE void StreamRow(D d, const float* e, float factor, float* y, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto misaligned =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(y) / sizeof(float)) % lanes;
  int64_t i = std::min(n, (lanes - misaligned) % lanes);
  ScaleRow(d, e, factor, y, i);
  const V v = hn::Set(d, factor);
  for (; i + lanes <= n; i += lanes) hn::Stream(hn::Mul(hn::LoadU(d, e + i), v), d, y + i);
  ScaleRow(d, e + i, factor, y + i, n - i);
}

LineStats<float> SoftmaxRow(const float* x, float* y, int64_t n) {
  const D d;
  const float max = RowMax(d, x, n);
  const float total = ExpSum<true>(d, x, y, n, max, nullptr);
  ScaleRow(d, y, 1.0f / total, y, n);
  return {max, total};
}

LineStats<float> CrossEntropyRow(const float* x, float* y, int64_t n, int64_t label, float scale,
                                 bool stream, const float* next) {
  constexpr int64_t kLongest = 16384;
  const D d;
  HWY_ALIGN float buffer[kLongest];
  stream = stream && n <= kLongest;
  float* e = stream ? buffer : y;
  const float max = RowMax(d, x, n);
  const float total = ExpSum<true>(d, x, e, n, max, next);
  e[label] -= total;  // softmax - 1 = (e - total) / total
  if (stream) {
    StreamRow(d, e, scale / total, y, n);
  } else {
    ScaleRow(d, e, scale / total, y, n);
  }
  return {max, total};
}

void LogSoftmaxRow(const float* x, float* y, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float max = RowMax(d, x, n);
  const V vmax = hn::Set(d, max);
  const V vlog = hn::Set(d, std::log(ExpSum<false>(d, x, nullptr, n, max, nullptr)));
  const auto value = [&](V v) { return hn::Sub(hn::Sub(v, vmax), vlog); };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(value(hn::LoadU(d, x + i)), d, y + i);
  if (i < n) StoreFirst(value(LoadFirst(x + i, n - i)), y + i, n - i);
}

// Writes v to dx + i, except that value(k) gives the elements k whose lanes are not finite.
template <class Value>
HWY_NOINLINE void StoreRepaired(V v, float* dx, int64_t i, const Value& value) {
  HWY_ALIGN float lanes[kMaxFloatLanes];
  hn::Store(v, D(), lanes);
  for (int64_t k = 0; k < FloatLanes(); ++k)
    dx[i + k] = std::isfinite(lanes[k]) ? lanes[k] : static_cast<float>(value(i + k));
}

// The sums of these rows are computed again in double if they overflow a float, and so are results
// that do on the way.
void SoftmaxGradRow(const float* y, const float* dy, float* dx, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sum = hn::MulAdd(hn::LoadU(d, y + i), hn::LoadU(d, dy + i), sum);
  }
  double dot = double{hn::GetLane(hn::SumOfLanes(d, sum))};
  for (; i < n; ++i) dot += double{y[i]} * double{dy[i]};
  if (!std::isfinite(dot)) {
    dot = 0;
    for (i = 0; i < n; ++i) dot += double{y[i]} * double{dy[i]};
  }
  const auto value = [&](int64_t k) { return double{y[k]} * (double{dy[k]} - dot); };
  const V vdot = hn::Set(d, static_cast<float>(dot));
  for (i = 0; i + lanes <= n; i += lanes) {
    const V v = hn::Mul(hn::LoadU(d, y + i), hn::Sub(hn::LoadU(d, dy + i), vdot));
    if (HWY_LIKELY(AllFinite(v)))
      hn::StoreU(v, d, dx + i);
    else
      StoreRepaired(v, dx, i, value);
  }
  for (; i < n; ++i) dx[i] = static_cast<float>(value(i));
}

void LogSoftmaxGradRow(const float* y, const float* dy, float* dx, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::Add(sum, hn::LoadU(d, dy + i));
  double total = double{hn::GetLane(hn::SumOfLanes(d, sum))};
  for (; i < n; ++i) total += double{dy[i]};
  if (!std::isfinite(total)) {
    total = 0;
    for (i = 0; i < n; ++i) total += double{dy[i]};
  }
  const auto value = [&](int64_t k) { return double{dy[k]} - std::exp(double{y[k]}) * total; };
  const V vtotal = hn::Set(d, static_cast<float>(total));
  for (i = 0; i + lanes <= n; i += lanes) {
    const V e = ExpNonPositive(hn::LoadU(d, y + i));
    const V v = hn::NegMulAdd(e, vtotal, hn::LoadU(d, dy + i));
    if (HWY_LIKELY(AllFinite(v)))
      hn::StoreU(v, d, dx + i);
    else
      StoreRepaired(v, dx, i, value);
  }
  for (; i < n; ++i) dx[i] = static_cast<float>(value(i));
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {

HWY_EXPORT(ExpSumRow);
HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(CrossEntropyRow);
HWY_EXPORT(LogSoftmaxRow);
HWY_EXPORT(SoftmaxGradRow);
HWY_EXPORT(LogSoftmaxGradRow);

LineStats<float> ExpSumRow(const float* x, int64_t n, const float* next) {
  return HWY_DYNAMIC_DISPATCH(ExpSumRow)(x, n, next);
}
LineStats<float> SoftmaxRow(const float* x, float* y, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxRow)(x, y, n);
}
LineStats<float> CrossEntropyRow(const float* x, float* y, int64_t n, int64_t label, float scale,
                                 bool stream, const float* next) {
  return HWY_DYNAMIC_DISPATCH(CrossEntropyRow)(x, y, n, label, scale, stream, next);
}
void FinishStreams() { hwy::FlushStream(); }
void LogSoftmaxRow(const float* x, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(LogSoftmaxRow)(x, y, n);
}
void SoftmaxGradRow(const float* y, const float* dy, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradRow)(y, dy, dx, n);
}
void LogSoftmaxGradRow(const float* y, const float* dy, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(LogSoftmaxGradRow)(y, dy, dx, n);
}

}  // namespace coracle::inline internal
#endif
