#include <coracle/operators/conv/pool_bytes.h>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/conv/pool_bytes_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
void MaxRow(const T* from, T* to, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Max(hn::LoadU(d, from + i), hn::LoadU(d, to + i)), d, to + i);
  for (; i < n; ++i) to[i] = std::max(from[i], to[i]);
}

// The channels [c, c + lanes).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MaxAt(D d, const PixelWindow& window, int64_t c, T* out) {
  const T* row = reinterpret_cast<const T*>(window.first) + c;
  auto most = hn::LoadU(d, row);
  for (int64_t i = 0; i < window.rows; ++i, row += window.row_step) {
    const T* pixel = row;
    for (int64_t j = 0; j < window.columns; ++j, pixel += window.step)
      most = hn::Max(most, hn::LoadU(d, pixel));
  }
  hn::StoreU(most, d, out + c);
}

// The last channels are computed again with those before them, in a whole vector.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void MaxOfChannels(D d, const PixelWindow& window, int64_t channels, T* out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) MaxAt(d, window, c, out);
  if (c < channels) MaxAt(d, window, channels - lanes, out);
}

template <class T>
void MaxPixels(const PixelWindow& window, int64_t channels, T* out) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 16> part;
  if (channels >= static_cast<int64_t>(hn::Lanes(d)))
    return MaxOfChannels(d, window, channels, out);
  if (channels >= static_cast<int64_t>(hn::Lanes(part)))
    return MaxOfChannels(part, window, channels, out);
  MaxOfChannels(hn::CappedTag<T, 1>(), window, channels, out);
}

void MaxRowSigned(const int8_t* from, int8_t* to, int64_t n) { MaxRow(from, to, n); }
void MaxRowUnsigned(const uint8_t* from, uint8_t* to, int64_t n) { MaxRow(from, to, n); }
void MaxPixelsSigned(const PixelWindow& w, int64_t channels, int8_t* out) {
  MaxPixels(w, channels, out);
}
void MaxPixelsUnsigned(const PixelWindow& w, int64_t channels, uint8_t* out) {
  MaxPixels(w, channels, out);
}

#if HWY_TARGET != HWY_SCALAR
// The channels [c, c + lanes) of uint16 sums, which hold 257 bytes.
template <class D16>
HWY_INLINE void SumAt(D16 d, const PixelWindow& window, int64_t c, uint8_t flip, int32_t* sums) {
  const hn::Rebind<uint8_t, D16> bytes;
  const hn::Repartition<int32_t, D16> wide;
  const hn::Half<D16> half;
  const auto flipped = hn::Set(bytes, flip);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  constexpr int64_t kMost = 256;
  auto low = hn::Zero(wide), high = hn::Zero(wide);
  auto sum = hn::Zero(d);
  int64_t count = 0;
  const auto flush = [&]() HWY_ATTR {
    low = hn::Add(low, hn::PromoteTo(wide, hn::LowerHalf(half, sum)));
    high = hn::Add(high, hn::PromoteTo(wide, hn::UpperHalf(half, sum)));
    sum = hn::Zero(d);
    count = 0;
  };
  const uint8_t* row = window.first + c;
  for (int64_t i = 0; i < window.rows; ++i, row += window.row_step) {
    const uint8_t* pixel = row;
    for (int64_t j = 0; j < window.columns; ++j, pixel += window.step) {
      sum = hn::Add(sum, hn::PromoteTo(d, hn::Xor(hn::LoadU(bytes, pixel), flipped)));
      if (++count == kMost) flush();
    }
  }
  flush();
  hn::StoreU(low, wide, sums + c);
  hn::StoreU(high, wide, sums + c + lanes);
}
#endif

void SumPixelBytes(const PixelWindow& window, int64_t channels, bool flip, int32_t* sums) {
  const auto top = static_cast<uint8_t>(flip ? 0x80 : 0);
  int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<uint16_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; c + lanes <= channels; c += lanes) SumAt(d, window, c, top, sums);
  if (c < channels && channels >= lanes) {
    SumAt(d, window, channels - lanes, top, sums);
    return;
  }
#endif
  for (; c < channels; ++c) {
    int32_t sum = 0;
    for (int64_t i = 0; i < window.rows; ++i) {
      const uint8_t* pixel = window.first + i * window.row_step + c;
      for (int64_t j = 0; j < window.columns; ++j, pixel += window.step) sum += *pixel ^ top;
    }
    sums[c] = sum;
  }
}

void AddBytes(const uint8_t* from, int64_t n, bool flip, int32_t* sums) {
  const hn::ScalableTag<int32_t> d;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto top = static_cast<uint8_t>(flip ? 0x80 : 0);
  const auto flipped = hn::Set(bytes, top);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto more = hn::PromoteTo(d, hn::Xor(hn::LoadU(bytes, from + i), flipped));
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), more), d, sums + i);
  }
  for (; i < n; ++i) sums[i] += from[i] ^ top;
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(MaxRowSigned);
HWY_EXPORT(MaxRowUnsigned);
HWY_EXPORT(MaxPixelsSigned);
HWY_EXPORT(MaxPixelsUnsigned);
HWY_EXPORT(SumPixelBytes);
HWY_EXPORT(AddBytes);

}  // namespace

void MaxOfBytes(const int8_t* from, int8_t* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(MaxRowSigned)(from, to, n);
}
void MaxOfBytes(const uint8_t* from, uint8_t* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(MaxRowUnsigned)(from, to, n);
}
void MaxOfPixels(const PixelWindow& window, int64_t channels, int8_t* out) {
  HWY_DYNAMIC_DISPATCH(MaxPixelsSigned)(window, channels, out);
}
void MaxOfPixels(const PixelWindow& window, int64_t channels, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(MaxPixelsUnsigned)(window, channels, out);
}
void SumPixelBytes(const PixelWindow& window, int64_t channels, bool flip, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(SumPixelBytes)(window, channels, flip, sums);
}
void AddBytes(const uint8_t* from, int64_t n, bool flip, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(AddBytes)(from, n, flip, sums);
}

}  // namespace coracle::inline internal
#endif
