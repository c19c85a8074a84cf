// LoadFirst and StoreFirst of simd-inl.h for bfloat16, for .cc files compiled once per SIMD target.

#if defined(CORACLE_OPERATORS_KERNELS_SIMD_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CORACLE_OPERATORS_KERNELS_SIMD_HALF_INL_H_
#undef CORACLE_OPERATORS_KERNELS_SIMD_HALF_INL_H_
#else
#define CORACLE_OPERATORS_KERNELS_SIMD_HALF_INL_H_
#endif

#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/kernels/simd-inl.h>

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {

// Widened, and rounded to nearest even like bfloat16.
HWY_INLINE FloatVec LoadFirst(const bfloat16* p, int64_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag f;
  const hn::RebindToUnsigned<FloatTag> d;
  const hn::Rebind<uint16_t, FloatTag> h;
  const auto widen = [&](const uint16_t* from) HWY_ATTR {
    return hn::BitCast(f, hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(h, from))));
  };
  const auto* bits = reinterpret_cast<const uint16_t*>(p);
  if (n >= static_cast<int64_t>(hn::Lanes(f))) return widen(bits);
  uint16_t buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = bits[i];
  return widen(buffer);
}
HWY_INLINE void StoreFirst(FloatVec v, bfloat16* p, int64_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag f;
  const hn::RebindToUnsigned<FloatTag> d;
  const hn::RebindToSigned<FloatTag> s;
  const hn::Rebind<uint16_t, FloatTag> h;
  const auto bits = hn::BitCast(d, v), upper = hn::ShiftRight<16>(bits);
  const auto half = hn::Add(hn::Set(d, 0x7fffu), hn::And(upper, hn::Set(d, 1u)));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half));
  // Not Ne(v, v): it is false for nans in some instruction sets.
  const auto magnitude = hn::BitCast(s, hn::And(bits, hn::Set(d, 0x7fffffffu)));
  const auto nan = hn::RebindMask(d, hn::Gt(magnitude, hn::Set(s, 0x7f800000)));
  const auto result = hn::IfThenElse(nan, hn::Or(upper, hn::Set(d, 0x40u)), rounded);
  const auto narrow = hn::DemoteTo(h, hn::BitCast(s, result));
  auto* to = reinterpret_cast<uint16_t*>(p);
  if (n >= static_cast<int64_t>(hn::Lanes(f))) return hn::StoreU(narrow, h, to);
  uint16_t buffer[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(narrow, h, buffer);
  for (int64_t i = 0; i < n; ++i) to[i] = buffer[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#endif
