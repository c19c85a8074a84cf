#include <coracle/operators/matmul/attention.h>

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/matmul/attention_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = FloatTag;
using V = FloatVec;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// For arguments <= 0 and nan. Highway's Exp needs finite arguments, and below -104 the result is
// 0 anyway.
HWY_INLINE V ExpNonPositive(V z) {
  const D d;
  const V e = hn::Exp(d, hn::Max(z, hn::Set(d, -200.0f)));
  return hn::IfThenElse(hn::IsNaN(z), z, e);
}

// The first `n` lanes of v, and the other lanes of `other`.
HWY_INLINE V Lower(V v, V other, int64_t n) {
  const D d;
  return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n)), v, other);
}

HWY_INLINE V MaskAt(const ScoreMask& mask, int64_t j, int64_t n) {
  if (mask.step == 0) return hn::Set(D(), mask.values[0]);
  return LoadFirst(mask.values + j, n);
}
HWY_INLINE V Score(V s, V scale, const ScoreMask& mask, int64_t j, int64_t n) {
  return mask.values ? hn::MulAdd(s, scale, MaskAt(mask, j, n)) : hn::Mul(s, scale);
}

float ExpRow(float* s, int64_t n, float scale, const ScoreMask& mask, float max, float* sum) {
  const D d;
  const int64_t lanes = FloatLanes();
  const V factor = hn::Set(d, scale);
  V most = hn::Set(d, max);
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    const V score = Score(hn::LoadU(d, s + j), factor, mask, j, lanes);
    hn::StoreU(score, d, s + j);
    most = hn::Max(most, score);
  }
  if (j < n) {
    const V score = Score(LoadFirst(s + j, n - j), factor, mask, j, n - j);
    StoreFirst(score, s + j, n - j);
    most = hn::Max(most, Lower(score, hn::Set(d, kMinusInf), n - j));
  }
  max = hn::GetLane(hn::MaxOfLanes(d, most));
  // If all scores so far are -inf, any finite number can serve as their maximum.
  const V shift = hn::Set(d, max == kMinusInf ? 0.0f : max);
  V total = hn::Zero(d);
  for (j = 0; j + lanes <= n; j += lanes) {
    const V e = ExpNonPositive(hn::Sub(hn::LoadU(d, s + j), shift));
    hn::StoreU(e, d, s + j);
    total = hn::Add(total, e);
  }
  if (j < n) {
    const V e = ExpNonPositive(hn::Sub(LoadFirst(s + j, n - j), shift));
    StoreFirst(e, s + j, n - j);
    total = hn::Add(total, Lower(e, hn::Zero(d), n - j));
  }
  *sum = hn::GetLane(hn::SumOfLanes(d, total));
  return max;
}

void GradientRow(const WeightRow& row, int64_t n, float* s, float* dp) {
  const D d;
  const int64_t lanes = FloatLanes();
  const V factor = hn::Set(d, row.scale), max = hn::Set(d, row.max);
  const V share = hn::Set(d, 1.0f / row.sum), delta = hn::Set(d, row.delta);
  V masked = hn::Zero(d);
  for (int64_t j = 0; j < n; j += lanes) {
    const int64_t count = n - j < lanes ? n - j : lanes;
    V weight, gradient = LoadFirst(dp + j, count);
    if (row.weights) {
      weight = LoadFirst(row.weights + j, count);
    } else {
      const V z = hn::Sub(Score(LoadFirst(s + j, count), factor, row.mask, j, count), max);
      weight = hn::Mul(ExpNonPositive(z), share);
    }
    if (row.factors) gradient = hn::Mul(gradient, LoadFirst(row.factors + j, count));
    gradient = hn::Mul(weight, hn::Sub(gradient, delta));
    if (row.factors) weight = hn::Mul(weight, LoadFirst(row.factors + j, count));
    if (row.dmask && row.mask.step == 0) {
      masked = hn::Add(masked, Lower(gradient, hn::Zero(d), count));
    } else if (row.dmask) {
      StoreFirst(hn::Add(gradient, LoadFirst(row.dmask + j, count)), row.dmask + j, count);
    }
    if (s) StoreFirst(weight, s + j, count);
    StoreFirst(hn::Mul(gradient, factor), dp + j, count);
  }
  if (row.dmask && row.mask.step == 0) *row.dmask += hn::GetLane(hn::SumOfLanes(d, masked));
}

void Scale(float* x, int64_t n, float factor) {
  const int64_t lanes = FloatLanes();
  for (int64_t j = 0; j < n; j += lanes)
    StoreFirst(hn::Mul(LoadFirst(x + j, n - j), hn::Set(D(), factor)), x + j, n - j);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(ExpRow);
HWY_EXPORT(GradientRow);
HWY_EXPORT(Scale);

}  // namespace

float ExpScores(float* s, int64_t n, float scale, const ScoreMask& mask, float max, float* sum) {
  return HWY_DYNAMIC_DISPATCH(ExpRow)(s, n, scale, mask, max, sum);
}
void WeightGradients(const WeightRow& row, int64_t n, float* s, float* dp) {
  HWY_DYNAMIC_DISPATCH(GradientRow)(row, n, s, dp);
}
void ScaleRow(float* x, int64_t n, float factor) { HWY_DYNAMIC_DISPATCH(Scale)(x, n, factor); }

}  // namespace coracle::inline internal
#endif
