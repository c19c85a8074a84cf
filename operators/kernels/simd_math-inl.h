// Exponentials that are right for every float, for the files that are compiled once per SIMD
// target; include after highway.h.

#if defined(CORACLE_SIMD_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CORACLE_SIMD_MATH_INL_H
#undef CORACLE_SIMD_MATH_INL_H
#else
#define CORACLE_SIMD_MATH_INL_H
#endif

#include <coracle/operators/kernels/simd_loops-inl.h>
#include <hwy/contrib/math/math-inl.h>

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace coracle::simd::HWY_NAMESPACE {

inline Vec Set(float value) { return hn::Set(Tag(), value); }
inline Vec KeepNan(Vec x, Vec result) { return hn::IfThenElse(hn::IsNaN(x), x, result); }
inline Vec Clamp(Vec x, float low, float high) { return hn::Min(hn::Max(x, Set(low)), Set(high)); }

// Highway's Exp and Tanh are wrong for arguments of large magnitude and for nans; these are right
// for all floats.
inline Vec SafeExp(Vec x) {
  const Vec y = hn::Exp(Tag(), Clamp(x, -104.0f, 88.7f));
  const auto high = hn::Gt(x, Set(88.722839f));
  return KeepNan(x, hn::IfThenElse(high, Set(std::numeric_limits<float>::infinity()), y));
}
inline Vec SafeTanh(Vec x) { return KeepNan(x, hn::Tanh(Tag(), Clamp(x, -20.0f, 20.0f))); }
inline Vec SafeSigmoid(Vec x) {
  const Vec one = Set(1.0f);
  const Vec e = hn::Exp(Tag(), Clamp(hn::Neg(x), -88.0f, 88.0f));
  return KeepNan(x, hn::Div(one, hn::Add(one, e)));
}

}  // namespace coracle::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
