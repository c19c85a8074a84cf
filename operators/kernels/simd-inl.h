// Loads and stores of partial vectors of floats, for .cc files compiled once per
// SIMD target (hwy/foreach_target.h).

#if defined(CORACLE_OPERATORS_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CORACLE_OPERATORS_KERNELS_SIMD_INL_H_
#undef CORACLE_OPERATORS_KERNELS_SIMD_INL_H_
#else
#define CORACLE_OPERATORS_KERNELS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {

using FloatTag = hwy::HWY_NAMESPACE::ScalableTag<float>;
using FloatVec = hwy::HWY_NAMESPACE::Vec<FloatTag>;

// The number of floats in a vector, and the largest that it may be.
HWY_INLINE int64_t FloatLanes() {
  return static_cast<int64_t>(hwy::HWY_NAMESPACE::Lanes(FloatTag()));
}
constexpr size_t kMaxFloatLanes = HWY_MAX_BYTES / sizeof(float);

// Whether no lane is a nan or an infinity.
HWY_INLINE bool AllFinite(FloatVec v) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  const FloatVec infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  return hn::AllTrue(d, hn::Lt(hn::Abs(v), infinity));
}

// Loads the first `n` lanes from p, zeros above; reads nothing past p + n.
HWY_INLINE FloatVec LoadFirst(const float* p, int64_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  if (n >= static_cast<int64_t>(hn::Lanes(d))) return hn::LoadU(d, p);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  HWY_ALIGN float buffer[kMaxFloatLanes] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  return hn::Load(d, buffer);
#endif
}

// Writes the first `n` lanes to p and nothing past p + n.
HWY_INLINE void StoreFirst(FloatVec v, float* p, int64_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  if (n >= static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(v, d, p);
    return;
  }
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  HWY_ALIGN float buffer[kMaxFloatLanes];
  hn::Store(v, d, buffer);
  for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#endif
