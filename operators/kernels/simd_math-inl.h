// Exponentials, for the files that are compiled once per SIMD target; include after highway.h.

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

// e^x for x in [-87, 88], and nan for nan; unspecified for other x. The relative error is below
// 2e-7, and 2e-6 at the ends. x log2(e) = n + r, |r| <= 1/2, and 2^r is a minimax polynomial with
// p(0) = 1.
inline Vec ExpInRange(Vec x) {
  // Adding 1.5 * 2^23 rounds to a whole number in the lowest bits, here with the bias of exponents.
  const Vec rounder = Set(12582912.0f + 127.0f), log2e = Set(1.44269504f);
  const Vec biased = hn::MulAdd(x, log2e, rounder);
  const Vec r = hn::MulSub(x, log2e, hn::Sub(biased, rounder));
  Vec p = Set(1.32647271e-3f);
  p = hn::MulAdd(p, r, Set(9.67151264e-3f));
  p = hn::MulAdd(p, r, Set(5.55073374e-2f));
  p = hn::MulAdd(p, r, Set(2.40222421e-1f));
  p = hn::MulAdd(p, r, Set(6.93146978e-1f));
  p = hn::MulAdd(p, r, Set(1.0f));
  const hn::RebindToSigned<Tag> whole;
  const Vec power = hn::BitCast(Tag(), hn::ShiftLeft<23>(hn::BitCast(whole, biased)));
  return hn::Mul(p, power);
}
// e^x for x <= 0 and nan: 0 below -87.
inline Vec ExpNonPositive(Vec x) {
  return hn::IfThenZeroElse(hn::Lt(x, Set(-87.0f)), ExpInRange(x));
}
// 1 / x for x of ordinary magnitude: an estimate of 12 bits or more and one Newton step.
inline Vec Reciprocal(Vec x) {
  const Vec y = hn::ApproximateReciprocal(x);
  return hn::Mul(y, hn::NegMulAdd(x, y, Set(2.0f)));
}

// Unlike Highway's Exp, which is wrong for arguments of large magnitude and for nans, these are
// right for all floats.
inline Vec SafeExp(Vec x) {
  constexpr float kHigh = 88.72283f;  // the largest whose exponential is a float
  const Vec y = hn::Exp(Tag(), Clamp(x, -104.0f, kHigh));
  const auto high = hn::Gt(x, Set(kHigh));
  return KeepNan(x, hn::IfThenElse(high, Set(std::numeric_limits<float>::infinity()), y));
}
// (1 - e) / (1 + e) with e = e^(-2 |x|), and a polynomial where 1 - e would lose bits.
inline Vec SafeTanh(Vec x) {
  const Vec a = hn::Min(hn::Abs(x), Set(20.0f)), one = Set(1.0f), u = hn::Mul(a, a);
  Vec p = Set(0.0172414915f);
  p = hn::MulAdd(p, u, Set(-0.0530454943f));
  p = hn::MulAdd(p, u, Set(0.133258790f));
  p = hn::MulAdd(p, u, Set(-0.333331439f));
  const Vec small = hn::MulAdd(hn::Mul(p, u), x, x);
  const Vec e = ExpInRange(hn::Mul(a, Set(-2.0f)));
  const Vec large = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  return KeepNan(x, hn::IfThenElse(hn::Lt(a, Set(0.5f)), small, large));
}
// 0 below -87, so that -inf gives 0.
inline Vec SafeSigmoid(Vec x) {
  const Vec e = ExpInRange(Clamp(hn::Neg(x), -87.0f, 87.0f)), one = Set(1.0f);
  const Vec y = hn::Div(one, hn::Add(one, e));
  return KeepNan(x, hn::IfThenZeroElse(hn::Lt(x, Set(-87.0f)), y));
}

}  // namespace coracle::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
