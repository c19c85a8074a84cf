#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/half_array.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/framework/tensor/half_array.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file again for every instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Every loop ends with a scalar loop over the elements that do not fill a vector.

template <class From, class To>
void ConvertLoop(const From* from, To* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = To(static_cast<float>(from[i]));
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
// Uses the machine's own conversions, which round to nearest even and keep nans.
void Widen(const float16* from, float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> h;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto* at = reinterpret_cast<const hwy::float16_t*>(from + i);
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(h, at)), d, to + i);
  }
  ConvertLoop(from + i, to + i, n - i);
}
void Narrow(const float* from, float16* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> h;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto* at = reinterpret_cast<hwy::float16_t*>(to + i);
    hn::StoreU(hn::DemoteTo(h, hn::LoadU(d, from + i)), h, at);
  }
  ConvertLoop(from + i, to + i, n - i);
}
#else
void Widen(const float16* from, float* to, int64_t n) { ConvertLoop(from, to, n); }
void Narrow(const float* from, float16* to, int64_t n) { ConvertLoop(from, to, n); }
#endif

void WidenB(const bfloat16* from, float* to, int64_t n) {
  const hn::ScalableTag<uint32_t> d;
  const hn::Rebind<uint16_t, decltype(d)> h;
  const hn::Rebind<float, decltype(d)> f;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bits = hn::LoadU(h, reinterpret_cast<const uint16_t*>(from + i));
    hn::StoreU(hn::BitCast(f, hn::ShiftLeft<16>(hn::PromoteTo(d, bits))), f, to + i);
  }
  ConvertLoop(from + i, to + i, n - i);
}
// bfloat16::FromFloat on vectors.
void NarrowB(const float* from, bfloat16* to, int64_t n) {
  const hn::ScalableTag<float> f;
  const hn::RebindToUnsigned<decltype(f)> d;
  const hn::RebindToSigned<decltype(f)> s;
  const hn::Rebind<uint16_t, decltype(d)> h;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1u), almost_half = hn::Set(d, 0x7fffu), quiet = hn::Set(d, 0x40u);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bits = hn::BitCast(d, hn::LoadU(f, from + i));
    const auto upper = hn::ShiftRight<16>(bits);
    const auto rounded =
        hn::ShiftRight<16>(hn::Add(hn::Add(bits, almost_half), hn::And(upper, one)));
    // Not Ne(value, value): it is false for nans in some instruction sets.
    const auto magnitude = hn::BitCast(s, hn::And(bits, hn::Set(d, 0x7fffffffu)));
    const auto nan = hn::RebindMask(d, hn::Gt(magnitude, hn::Set(s, 0x7f800000)));
    const auto result = hn::IfThenElse(nan, hn::Or(upper, quiet), rounded);
    hn::StoreU(hn::DemoteTo(h, hn::BitCast(s, result)), h, reinterpret_cast<uint16_t*>(to + i));
  }
  ConvertLoop(from + i, to + i, n - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {

HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);
HWY_EXPORT(WidenB);
HWY_EXPORT(NarrowB);

namespace {

template <class From, class To>
void InParallel(void (*loop)(const From*, To*, int64_t), const From* from, To* to, int64_t n) {
  ParallelFor(n, 32768,
              [=](int64_t begin, int64_t end) { loop(from + begin, to + begin, end - begin); });
}

}  // namespace

void ConvertArray(const float16* from, float* to, int64_t n) {
  InParallel(HWY_DYNAMIC_DISPATCH(Widen), from, to, n);
}
void ConvertArray(const bfloat16* from, float* to, int64_t n) {
  InParallel(HWY_DYNAMIC_DISPATCH(WidenB), from, to, n);
}
void ConvertArray(const float* from, float16* to, int64_t n) {
  InParallel(HWY_DYNAMIC_DISPATCH(Narrow), from, to, n);
}
void ConvertArray(const float* from, bfloat16* to, int64_t n) {
  InParallel(HWY_DYNAMIC_DISPATCH(NarrowB), from, to, n);
}

void HalfToFloat(DType half, const void* from, float* to, int64_t n) {
  if (half == DType::kFloat16)
    ConvertArray(static_cast<const float16*>(from), to, n);
  else
    ConvertArray(static_cast<const bfloat16*>(from), to, n);
}
void FloatToHalf(const float* from, DType half, void* to, int64_t n) {
  if (half == DType::kFloat16)
    ConvertArray(from, static_cast<float16*>(to), n);
  else
    ConvertArray(from, static_cast<bfloat16*>(to), n);
}

}  // namespace coracle::inline internal
#endif
