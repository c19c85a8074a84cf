// Parts of the vectorised loops of norms, for .cc files that are compiled once for each SIMD target
// (see hwy/foreach_target.h).

#if defined(CORACLE_OPERATORS_NORM_NORM_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CORACLE_OPERATORS_NORM_NORM_SIMD_INL_H_
#undef CORACLE_OPERATORS_NORM_NORM_SIMD_INL_H_
#else
#define CORACLE_OPERATORS_NORM_NORM_SIMD_INL_H_
#endif

#include <coracle/operators/kernels/simd_half-inl.h>
#include <coracle/operators/norm/norm.h>

#include <algorithm>
#include <numeric>

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// --- parameters of channels: one for each element of a row, or one for a whole plane ---

struct OwnParam {
  static constexpr bool kSame = false;
  const float* p;
  HWY_INLINE FloatVec At(int64_t c, int64_t n) const { return LoadFirst(p + c, n); }
};
struct SameParam {
  static constexpr bool kSame = true;
  FloatVec v;
  HWY_INLINE FloatVec At(int64_t, int64_t n) const {
    return n >= FloatLanes()
               ? v
               : hn::IfThenElseZero(hn::FirstN(FloatTag(), static_cast<size_t>(n)), v);
  }
};
HWY_INLINE SameParam Same(float value) { return {hn::Set(FloatTag(), value)}; }

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

// The terms of a sum over elements.
enum SumTerms { kMoments, kGrad, kMaskedByX, kMasked, kMaskedStored };

// dy of the elements from e on, or 0 where it is ignored; x is X - shift.
template <SumTerms kTerms, class E>
HWY_INLINE FloatVec Masked(const NormTermsOf<E>& t, int64_t e, int64_t n, FloatVec x, FloatVec a,
                           FloatVec b) {
  const FloatVec dy = LoadFirst(t.dy + e, n), zero = hn::Zero(FloatTag());
  if constexpr (kTerms == kMaskedByX)
    return hn::IfThenZeroElse(hn::Le(hn::MulAdd(x, a, b), zero), dy);
  if constexpr (kTerms >= kMasked)
    return hn::IfThenZeroElse(hn::Le(LoadFirst(t.y + e, n), zero), dy);
  return dy;
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#endif
