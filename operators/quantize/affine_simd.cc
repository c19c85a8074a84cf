#include <coracle/operators/quantize/affine.h>

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/quantize/affine_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;
template <class Q>
using ByteTag = hn::Rebind<Q, FloatTag>;

// The largest vector of floats has this many lanes on any target.
constexpr int64_t kMostLanes = kMaxFloatLanes;

// The limits lie among the integers, so the quotient may be clamped before it is rounded. A nan is
// not greater than `least`.
struct Limits {
  FloatVec least, most;
  IntVec zero;
  bool away;
  Limits(IntVec z, IntegerRange range) : zero(z), away(range.away) {
    const IntTag i;
    const FloatTag f;
    least = hn::ConvertTo(f, hn::Sub(hn::Set(i, range.least), z));
    most = hn::ConvertTo(f, hn::Sub(hn::Set(i, range.most), z));
  }
  HWY_INLINE IntVec Round(FloatVec v) const {
    v = hn::Min(hn::IfThenElse(hn::Gt(v, least), v, least), most);
    return hn::Add(away ? NearestAway(v) : hn::NearestInt(v), zero);
  }

 private:
  // The difference to the integer towards 0 is exact.
  static HWY_INLINE IntVec NearestAway(FloatVec v) {
    const FloatTag d;
    const auto whole = hn::Trunc(v);
    const auto rest = hn::Abs(hn::Sub(v, whole));
    const auto one = hn::CopySign(hn::Set(d, 1.0f), v);
    const auto step = hn::IfThenElseZero(hn::Ge(rest, hn::Set(d, 0.5f)), one);
    return hn::ConvertTo(IntTag(), hn::Add(whole, step));
  }
};

HWY_INLINE IntVec LoadInts(const int32_t* p, int64_t n) {
  const IntTag d;
  if (n >= FloatLanes()) return hn::LoadU(d, p);
  HWY_ALIGN int32_t buffer[kMostLanes] = {};
  std::copy_n(p, n, buffer);
  return hn::Load(d, buffer);
}

template <class Q>
HWY_INLINE void StoreBytes(IntVec v, Q* q, int64_t n) {
  const ByteTag<Q> d;
  const auto bytes = hn::DemoteTo(d, v);
  if (n >= FloatLanes()) return hn::StoreU(bytes, d, q);
  Q buffer[kMostLanes];
  hn::StoreU(bytes, d, buffer);
  std::copy_n(buffer, n, q);
}

template <class Q>
HWY_INLINE IntVec LoadBytes(const Q* q, int64_t n) {
  const ByteTag<Q> d;
  if (n >= FloatLanes()) return hn::PromoteTo(IntTag(), hn::LoadU(d, q));
  Q buffer[kMostLanes] = {};
  std::copy_n(q, n, buffer);
  return hn::PromoteTo(IntTag(), hn::LoadU(d, buffer));
}

template <class Q>
void QuantizeRun(const float* x, int64_t n, float scale, int32_t zero, IntegerRange range, Q* q) {
  const FloatTag d;
  const int64_t lanes = FloatLanes();
  const auto s = hn::Set(d, scale);
  const Limits limits(hn::Set(IntTag(), zero), range);
  for (int64_t i = 0; i < n; i += lanes)
    StoreBytes(limits.Round(hn::Div(LoadFirst(x + i, n - i), s)), q + i, n - i);
}

template <class Q>
void QuantizeEach(const float* x, int64_t n, const float* scales, const int32_t* zeros,
                  IntegerRange range, Q* q) {
  const int64_t lanes = FloatLanes();
  for (int64_t i = 0; i < n; i += lanes) {
    const Limits limits(LoadInts(zeros + i, n - i), range);
    const auto quotient = hn::Div(LoadFirst(x + i, n - i), LoadFirst(scales + i, n - i));
    StoreBytes(limits.Round(quotient), q + i, n - i);
  }
}

template <class Q>
void DequantizeRun(const Q* q, int64_t n, float scale, int32_t zero, float* x) {
  const FloatTag d;
  const int64_t lanes = FloatLanes();
  const auto s = hn::Set(d, scale);
  const auto z = hn::Set(IntTag(), zero);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto v = hn::ConvertTo(d, hn::Sub(LoadBytes(q + i, n - i), z));
    StoreFirst(hn::Mul(v, s), x + i, n - i);
  }
}

template <class Q>
void DequantizeEach(const Q* q, int64_t n, const float* scales, const int32_t* zeros, float* x) {
  const FloatTag d;
  const int64_t lanes = FloatLanes();
  for (int64_t i = 0; i < n; i += lanes) {
    const auto z = LoadInts(zeros + i, n - i);
    const auto v = hn::ConvertTo(d, hn::Sub(LoadBytes(q + i, n - i), z));
    StoreFirst(hn::Mul(v, LoadFirst(scales + i, n - i)), x + i, n - i);
  }
}

// The table of a target has no templates.
void QuantizeInt8(const float* x, int64_t n, const float* scales, const int32_t* zeros, bool each,
                  IntegerRange range, int8_t* q) {
  each ? QuantizeEach(x, n, scales, zeros, range, q) : QuantizeRun(x, n, *scales, *zeros, range, q);
}
void QuantizeUInt8(const float* x, int64_t n, const float* scales, const int32_t* zeros, bool each,
                   IntegerRange range, uint8_t* q) {
  each ? QuantizeEach(x, n, scales, zeros, range, q) : QuantizeRun(x, n, *scales, *zeros, range, q);
}
void DequantizeInt8(const int8_t* q, int64_t n, const float* scales, const int32_t* zeros,
                    bool each, float* x) {
  each ? DequantizeEach(q, n, scales, zeros, x) : DequantizeRun(q, n, *scales, *zeros, x);
}
void DequantizeUInt8(const uint8_t* q, int64_t n, const float* scales, const int32_t* zeros,
                     bool each, float* x) {
  each ? DequantizeEach(q, n, scales, zeros, x) : DequantizeRun(q, n, *scales, *zeros, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {

HWY_EXPORT(QuantizeInt8);
HWY_EXPORT(QuantizeUInt8);
HWY_EXPORT(DequantizeInt8);
HWY_EXPORT(DequantizeUInt8);

template <>
void QuantizeSimd(const float* x, int64_t n, const float* scales, const int32_t* zeros, bool each,
                  IntegerRange range, int8_t* q) {
  HWY_DYNAMIC_DISPATCH(QuantizeInt8)(x, n, scales, zeros, each, range, q);
}
template <>
void QuantizeSimd(const float* x, int64_t n, const float* scales, const int32_t* zeros, bool each,
                  IntegerRange range, uint8_t* q) {
  HWY_DYNAMIC_DISPATCH(QuantizeUInt8)(x, n, scales, zeros, each, range, q);
}
template <>
void DequantizeSimd(const int8_t* q, int64_t n, const float* scales, const int32_t* zeros,
                    bool each, float* x) {
  HWY_DYNAMIC_DISPATCH(DequantizeInt8)(q, n, scales, zeros, each, x);
}
template <>
void DequantizeSimd(const uint8_t* q, int64_t n, const float* scales, const int32_t* zeros,
                    bool each, float* x) {
  HWY_DYNAMIC_DISPATCH(DequantizeUInt8)(q, n, scales, zeros, each, x);
}

}  // namespace coracle::inline internal
#endif
