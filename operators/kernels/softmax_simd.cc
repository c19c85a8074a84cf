#include <coracle/operators/kernels/softmax.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/kernels/softmax_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file again for every instruction set.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace coracle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// exp for arguments <= 0 and nan. Highway's Exp needs finite arguments, and below -104 the result
// is 0 anyway.
HWY_INLINE V ExpNonPositive(D d, V z) {
  const V e = hn::Exp(d, hn::Max(z, hn::Set(d, -200.0f)));
  return hn::IfThenElse(hn::IsNaN(z), z, e);
}

// The last, incomplete vector of a row, filled up with `fill`.
HWY_INLINE V LoadTail(D d, const float* x, int64_t count, float fill) {
  HWY_ALIGN float buffer[hn::MaxLanes(D())];
  hn::Store(hn::Set(d, fill), d, buffer);
  for (int64_t i = 0; i < count; ++i) buffer[i] = x[i];
  return hn::Load(d, buffer);
}

HWY_INLINE void StoreTail(D d, V v, float* y, int64_t count) {
  HWY_ALIGN float buffer[hn::MaxLanes(D())];
  hn::Store(v, d, buffer);
  for (int64_t i = 0; i < count; ++i) y[i] = buffer[i];
}

HWY_INLINE float RowMax(D d, const float* x, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V max = hn::Set(d, kMinusInf);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) max = hn::Max(max, hn::LoadU(d, x + i));
  if (i < n) max = hn::Max(max, LoadTail(d, x + i, n - i, kMinusInf));
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

LineStats<float> SoftmaxRow(const float* x, float* y, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float max = RowMax(d, x, n);
  const V vmax = hn::Set(d, max);
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V e = ExpNonPositive(d, hn::Sub(hn::LoadU(d, x + i), vmax));
    hn::StoreU(e, d, y + i);
    sum = hn::Add(sum, e);
  }
  V tail = hn::Zero(d);
  if (i < n) {
    // The tail is cut off after the exponential, not filled with -inf before it: -inf minus a max
    // of -inf is a nan, which would reach the sum.
    const V z = hn::Sub(LoadTail(d, x + i, n - i, 0.0f), vmax);
    StoreTail(d, ExpNonPositive(d, z), y + i, n - i);
    tail = LoadTail(d, y + i, n - i, 0.0f);
    sum = hn::Add(sum, tail);
  }
  const float total = hn::GetLane(hn::SumOfLanes(d, sum));
  const V scale = hn::Set(d, 1.0f / total);
  for (i = 0; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, y + i), scale), d, y + i);
  }
  if (i < n) StoreTail(d, hn::Mul(tail, scale), y + i, n - i);
  return {max, total};
}

void LogSoftmaxRow(const float* x, float* y, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float max = RowMax(d, x, n);
  const V vmax = hn::Set(d, max);
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sum = hn::Add(sum, ExpNonPositive(d, hn::Sub(hn::LoadU(d, x + i), vmax)));
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += std::exp(x[i] - max);
  const float log_sum = std::log(total);
  const V vlog = hn::Set(d, log_sum);
  for (i = 0; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(d, x + i), vmax), vlog), d, y + i);
  }
  for (; i < n; ++i) y[i] = x[i] - max - log_sum;
}

void SoftmaxGradRow(const float* y, const float* dy, float* dx, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sum = hn::MulAdd(hn::LoadU(d, y + i), hn::LoadU(d, dy + i), sum);
  }
  float dot = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) dot += y[i] * dy[i];
  const V vdot = hn::Set(d, dot);
  for (i = 0; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Sub(hn::LoadU(d, dy + i), vdot)), d, dx + i);
  }
  for (; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
}

void LogSoftmaxGradRow(const float* y, const float* dy, float* dx, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::Add(sum, hn::LoadU(d, dy + i));
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += dy[i];
  const V vtotal = hn::Set(d, total);
  for (i = 0; i + lanes <= n; i += lanes) {
    const V e = ExpNonPositive(d, hn::LoadU(d, y + i));
    hn::StoreU(hn::NegMulAdd(e, vtotal, hn::LoadU(d, dy + i)), d, dx + i);
  }
  for (; i < n; ++i) dx[i] = dy[i] - std::exp(y[i]) * total;
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle {

HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(LogSoftmaxRow);
HWY_EXPORT(SoftmaxGradRow);
HWY_EXPORT(LogSoftmaxGradRow);

LineStats<float> SoftmaxRow(const float* x, float* y, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxRow)(x, y, n);
}
void LogSoftmaxRow(const float* x, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(LogSoftmaxRow)(x, y, n);
}
void SoftmaxGradRow(const float* y, const float* dy, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradRow)(y, dy, dx, n);
}
void LogSoftmaxGradRow(const float* y, const float* dy, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(LogSoftmaxGradRow)(y, dy, dx, n);
}

}  // namespace coracle
#endif
