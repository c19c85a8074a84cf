// Loops of a constant count whose bodies see the index as a constant, for .cc files compiled once
// per SIMD target (hwy/foreach_target.h).

#if defined(CORACLE_OPERATORS_KERNELS_SIMD_UNROLL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CORACLE_OPERATORS_KERNELS_SIMD_UNROLL_INL_H_
#undef CORACLE_OPERATORS_KERNELS_SIMD_UNROLL_INL_H_
#else
#define CORACLE_OPERATORS_KERNELS_SIMD_UNROLL_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {

// f(0), ..., f(n - 1) with constants, so that arrays of vectors stay in registers.
template <class F, int... kIndex>
HWY_INLINE void UnrollTo(std::integer_sequence<int, kIndex...>, F&& f) {
  (f(std::integral_constant<int, kIndex>()), ...);
}
template <int kCount, class F>
HWY_INLINE void Unroll(F&& f) {
  UnrollTo(std::make_integer_sequence<int, kCount>(), f);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#endif
