#include <coracle/operators/quantize/conv_sums_simd.h>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/quantize/conv_sums_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// sum[c] + add[c] - ones_times[c] sum[channels]. Integers wrap.
struct Corrected {
  const ChannelTerms& terms;
  const int32_t* sums;  // of the pixel

  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, int64_t c) const {
    const auto sum = hn::Add(hn::LoadU(d, sums + c), hn::LoadU(d, terms.add + c));
    if (!terms.ones_times) return sum;
    const auto ones = hn::Set(d, sums[terms.channels]);
    return hn::Sub(sum, hn::Mul(hn::LoadU(d, terms.ones_times + c), ones));
  }
};

template <class D>
HWY_INLINE void ToReals(D d, const ChannelTerms& terms, const int32_t* sums, int64_t c,
                        float* real) {
  const hn::RebindToFloat<D> f;
  const auto sum = hn::ConvertTo(f, Corrected{terms, sums}(d, c));
  const auto scale = hn::LoadU(f, terms.scale + c);
  hn::StoreU(
      terms.bias ? hn::MulAdd(sum, scale, hn::LoadU(f, terms.bias + c)) : hn::Mul(sum, scale), f,
      real + c);
}

// Calls visit(tag, channel) for vectors of the channels, then for the rest one by one.
template <class Visit>
HWY_INLINE void ForChannels(int64_t channels, const Visit& visit) {
  const hn::ScalableTag<int32_t> wide;
  const hn::CappedTag<int32_t, 1> one;
  const int64_t lanes = FloatLanes();
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) visit(wide, c);
  for (; c < channels; ++c) visit(one, c);
}

void SumsToReals(const ChannelTerms& terms, const int32_t* sums, int64_t pixels, float* real) {
  const int64_t channels = terms.channels, step = channels + (terms.ones_times ? 1 : 0);
  for (int64_t p = 0; p < pixels; ++p) {
    ForChannels(channels, [&](auto d, int64_t c) HWY_ATTR {
      ToReals(d, terms, sums + p * step, c, real + p * channels);
    });
  }
}

void CorrectSums(const ChannelTerms& terms, const int32_t* sums, int64_t pixels, int32_t* out) {
  const int64_t channels = terms.channels, step = channels + (terms.ones_times ? 1 : 0);
  for (int64_t p = 0; p < pixels; ++p) {
    ForChannels(channels, [&](auto d, int64_t c) HWY_ATTR {
      hn::StoreU(Corrected{terms, sums + p * step}(d, c), d, out + p * channels + c);
    });
  }
}

template <class Q>
HWY_INLINE void AddBytes(const Q* q, float scale, int32_t zero, int64_t n, float* x) {
  const FloatTag f;
  const hn::RebindToSigned<FloatTag> wide;
  const hn::Rebind<Q, FloatTag> bytes;
  const auto s = hn::Set(f, scale);
  const auto z = hn::Set(wide, zero);
  int64_t i = 0;
  for (; i + FloatLanes() <= n; i += FloatLanes()) {
    const auto v = hn::Sub(hn::PromoteTo(wide, hn::LoadU(bytes, q + i)), z);
    hn::StoreU(hn::MulAdd(hn::ConvertTo(f, v), s, hn::LoadU(f, x + i)), f, x + i);
  }
  for (; i < n; ++i) x[i] += scale * static_cast<float>(q[i] - zero);
}

void AddInt8(const int8_t* q, float scale, int32_t zero, int64_t n, float* x) {
  AddBytes(q, scale, zero, n, x);
}
void AddUInt8(const uint8_t* q, float scale, int32_t zero, int64_t n, float* x) {
  AddBytes(q, scale, zero, n, x);
}

void Flip(const uint8_t* from, int64_t n, uint8_t* to) {
  const hn::ScalableTag<uint8_t> d;
  const auto sign = hn::Set(d, uint8_t{0x80});
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Xor(hn::LoadU(d, from + i), sign), d, to + i);
  for (; i < n; ++i) to[i] = from[i] ^ 0x80;
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {

HWY_EXPORT(SumsToReals);
HWY_EXPORT(CorrectSums);
HWY_EXPORT(AddInt8);
HWY_EXPORT(AddUInt8);
HWY_EXPORT(Flip);

void SumsToReals(const ChannelTerms& terms, const int32_t* sums, int64_t pixels, float* real) {
  HWY_DYNAMIC_DISPATCH(SumsToReals)(terms, sums, pixels, real);
}
void CorrectSums(const ChannelTerms& terms, const int32_t* sums, int64_t pixels, int32_t* out) {
  HWY_DYNAMIC_DISPATCH(CorrectSums)(terms, sums, pixels, out);
}
void AddIntegers(const void* q, DType dtype, float scale, int32_t zero, int64_t n, float* x) {
  if (dtype == DType::kInt8)
    HWY_DYNAMIC_DISPATCH(AddInt8)(static_cast<const int8_t*>(q), scale, zero, n, x);
  else
    HWY_DYNAMIC_DISPATCH(AddUInt8)(static_cast<const uint8_t*>(q), scale, zero, n, x);
}
void FlipSigns(const void* from, int64_t n, void* to) {
  HWY_DYNAMIC_DISPATCH(Flip)(static_cast<const uint8_t*>(from), n, static_cast<uint8_t*>(to));
}

}  // namespace coracle::inline internal
#endif
