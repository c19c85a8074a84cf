#include <coracle/operators/conv/conv_direct_simd.h>

#include <algorithm>
#include <type_traits>

// Excludes targets with vector sizes unknown at compile time: they have no arrays of vectors.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/conv/conv_direct_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
#include <coracle/operators/kernels/simd_unroll-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A nan stays a nan.
HWY_INLINE FloatVec Relu(FloatVec x) {
  const FloatTag d;
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
}

constexpr int64_t kLineFloats = 16;  // floats in a cache line

// --- depthwise ---

// The sums for a vector of channels at kCount neighbouring outputs of kRows rows.
template <int kRows, int kCount>
using Sums = FloatVec[kRows][kCount];

// Adds the products of input row y to the outputs of rows [kFirst, kLast), loading every input
// once. Row r uses the kernel row tap - r. kInside: all columns of the windows lie inside
// the image.
template <int kWidth, int kStride, bool kInside, int kFirst, int kLast, int kRows, int kCount>
HWY_INLINE void AddInputRow(const DepthwiseRows& t, int64_t y, int64_t tap, int64_t column,
                            int64_t c, Sums<kRows, kCount>& sum) {
  const FloatTag d;
  const int64_t channels = t.channels;
  const float* HWY_RESTRICT in = t.image + y * t.width * channels + c;
  FloatVec w[kRows][kWidth];
  Unroll<kLast - kFirst>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
    constexpr int kRow = kFirst + decltype(k)::value;
    const float* HWY_RESTRICT filter = t.filter + (tap - kRow) * kWidth * channels + c;
    Unroll<kWidth>([&](auto j) HWY_ATTR __attribute__((always_inline)) {
      w[kRow][j] = hn::LoadU(d, filter + j * channels);
    });
  });
  Unroll<(kCount - 1) * kStride + kWidth>([&](auto j) HWY_ATTR __attribute__((always_inline)) {
    if (!kInside && (column + j < 0 || column + j >= t.width)) return;
    const FloatVec v = hn::LoadU(d, in + (column + j) * channels);
    Unroll<kLast - kFirst>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kRow = kFirst + decltype(k)::value;
      Unroll<kCount>([&](auto b) HWY_ATTR __attribute__((always_inline)) {
        constexpr int kTap = decltype(j)::value - decltype(b)::value * kStride;
        if constexpr (kTap >= 0 && kTap < kWidth)
          sum[kRow][b] = hn::MulAdd(v, w[kRow][kTap], sum[kRow][b]);
      });
    });
  });
}

// The parameters of a loop. kSquare: windows are square, so that the height is a
// compile-time constant.
template <int kKernelWidth, int kStrideWidth, bool kIsSquare, int kNumRows>
struct DepthwiseKind {
  static constexpr int kWidth = kKernelWidth, kStride = kStrideWidth, kRows = kNumRows;
  static constexpr bool kSquare = kIsSquare;
};

// Computes kCount outputs from x on in kRows rows. Two rows need a stride and a dilation of 1.
template <class Kind, int kCount, bool kInside>
HWY_INLINE void DepthwiseBlock(const DepthwiseRows& t, int64_t x, int64_t c) {
  constexpr int kWidth = Kind::kWidth, kStride = Kind::kStride, kRows = Kind::kRows;
  const int64_t kernel_h = Kind::kSquare ? kWidth : t.kernel_h;
  const FloatTag d;
  const int64_t column = t.left + x * kStride;
  Sums<kRows, kCount> sum;
  const FloatVec init = t.bias ? hn::LoadU(d, t.bias + c) : hn::Zero(d);
  Unroll<kRows>([&](auto r) HWY_ATTR __attribute__((always_inline)) {
    Unroll<kCount>([&](auto b) HWY_ATTR __attribute__((always_inline)) { sum[r][b] = init; });
  });
  for (int64_t i = 0; i < kernel_h + kRows - 1; ++i) {
    const int64_t y = t.top + i * t.dilation_h;
    if (y < 0 || y >= t.height) continue;
    if constexpr (kRows == 1) {
      AddInputRow<kWidth, kStride, kInside, 0, 1>(t, y, i, column, c, sum);
    } else if (i == 0) {
      AddInputRow<kWidth, kStride, kInside, 0, 1>(t, y, i, column, c, sum);
    } else if (i == kernel_h) {
      AddInputRow<kWidth, kStride, kInside, 1, 2>(t, y, i, column, c, sum);
    } else {
      AddInputRow<kWidth, kStride, kInside, 0, 2>(t, y, i, column, c, sum);
    }
  }
  if (t.relu) {
    Unroll<kRows>([&](auto r) HWY_ATTR __attribute__((always_inline)) {
      Unroll<kCount>([&](auto b) HWY_ATTR
                     __attribute__((always_inline)) { sum[r][b] = Relu(sum[r][b]); });
    });
  }
  // Local copies: the compiler must assume that the stores change the members.
  const int64_t channels = t.channels, row = t.out_width * channels;
  float* out = t.out + x * channels + c;
  Unroll<kRows>([&](auto r) HWY_ATTR __attribute__((always_inline)) {
    Unroll<kCount>([&](auto b) HWY_ATTR __attribute__((always_inline)) {
      hn::StoreU(sum[r][b], d, out + r * row + b * channels);
    });
  });
}

template <class Kind>
void DepthwiseLoop(const DepthwiseRows& t) {
  constexpr int kBlock = 7;  // leaves registers for kernel rows; widths are often multiples of it
  constexpr int kStride = Kind::kStride;
  const auto lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  const int64_t reach = (kBlock - 1) * kStride + Kind::kWidth;
  // cache lines for a vector of each output
  constexpr int kLines = (kBlock * HWY_MAX_BYTES + 63) / 64;
  const float* ahead = nullptr;
  // The last vector overlaps the previous one and writes the same values twice.
  const auto for_channels = [&](auto&& block) HWY_ATTR __attribute__((always_inline)) {
    for (int64_t c = 0; c < t.channels; c += lanes) {
      if (ahead) {
        Unroll<kLines>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
          __builtin_prefetch(ahead + decltype(i)::value * kLineFloats, 0, 3);
        });
        ahead += kBlock * lanes;
      }
      block(std::min(c, t.channels - lanes));
    }
  };
  // With a stride of 1, the next row reads one more row of inputs. Its lines are prefetched, some
  // for each vector of channels, because the hardware prefetcher does not recognise the order
  // of access.
  const int64_t next = t.top + t.kernel_h;
  if (kStride == 1 && Kind::kRows == 1 && t.dilation_h == 1 && next >= 0 && next < t.height)
    ahead = t.image + next * t.width * t.channels;
  int64_t x = 0;
  for (; x + kBlock <= t.out_width; x += kBlock) {
    const int64_t column = t.left + x * kStride;
    if (column >= 0 && column + reach <= t.width) {
      for_channels([&](int64_t c) HWY_ATTR
                   __attribute__((always_inline)) { DepthwiseBlock<Kind, kBlock, true>(t, x, c); });
    } else {
      for_channels([&](int64_t c) HWY_ATTR __attribute__((always_inline)) {
        DepthwiseBlock<Kind, kBlock, false>(t, x, c);
      });
    }
  }
  ahead = nullptr;
  for (; x < t.out_width; ++x) {
    for_channels([&](int64_t c) HWY_ATTR
                 __attribute__((always_inline)) { DepthwiseBlock<Kind, 1, false>(t, x, c); });
  }
}

// Two rows at a time need 25 registers.
constexpr bool kHasTwoRows = HWY_MAX_BYTES >= 64;

template <int kWidth, bool kSquare>
void DepthwiseOfWidth(const DepthwiseRows& t, int64_t stride_w) {
  if (stride_w == 2) return DepthwiseLoop<DepthwiseKind<kWidth, 2, kSquare, 1>>(t);
  if constexpr (kHasTwoRows) {
    if (t.rows == 2) return DepthwiseLoop<DepthwiseKind<kWidth, 1, kSquare, 2>>(t);
  }
  DepthwiseLoop<DepthwiseKind<kWidth, 1, kSquare, 1>>(t);
}

void RunDepthwise(const DepthwiseRows& t, int64_t kernel_w, int64_t stride_w) {
  if (t.kernel_h == kernel_w)
    kernel_w == 3 ? DepthwiseOfWidth<3, true>(t, stride_w) : DepthwiseOfWidth<5, true>(t, stride_w);
  else
    kernel_w == 3 ? DepthwiseOfWidth<3, false>(t, stride_w)
                  : DepthwiseOfWidth<5, false>(t, stride_w);
}

// Computes kCount outputs of a row from x on. kInside: no window exceeds the image on the left or
// on the right.
template <int kCount, bool kInside>
HWY_INLINE void AnyBlock(const DepthwiseRows& t, const DepthwiseWindows& w, int64_t x, int64_t c) {
  const FloatTag d;
  const int64_t channels = t.channels, step = w.stride * channels;
  FloatVec sum[kCount];
  const FloatVec init = t.bias ? hn::LoadU(d, t.bias + c) : hn::Zero(d);
  Unroll<kCount>([&](auto b) HWY_ATTR __attribute__((always_inline)) { sum[b] = init; });
  for (int64_t i = 0; i < t.kernel_h; ++i) {
    const int64_t y = t.top + i * t.dilation_h;
    if (y < 0 || y >= t.height) continue;
    int64_t column = t.left + x * w.stride;
    const float* HWY_RESTRICT filter = t.filter + i * w.kernel * channels + c;
    for (int64_t j = 0; j < w.kernel; ++j, column += w.dilation, filter += channels) {
      const FloatVec tap = hn::LoadU(d, filter);
      const float* HWY_RESTRICT in = t.image + (y * t.width + column) * channels + c;
      Unroll<kCount>([&](auto b) HWY_ATTR __attribute__((always_inline)) {
        constexpr int kAt = decltype(b)::value;
        const int64_t at = column + kAt * w.stride;
        if (kInside || (at >= 0 && at < t.width))
          sum[b] = hn::MulAdd(hn::LoadU(d, in + kAt * step), tap, sum[b]);
      });
    }
  }
  float* out = t.out + x * channels + c;
  Unroll<kCount>([&](auto b) HWY_ATTR __attribute__((always_inline)) {
    hn::StoreU(t.relu ? Relu(sum[b]) : sum[b], d, out + b * channels);
  });
}

void RunAnyRow(const DepthwiseRows& t, const DepthwiseWindows& w) {
  constexpr int kBlock = HWY_MAX_BYTES >= 64 ? 14 : 8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  // The last vector overlaps the previous one and writes the same values twice.
  const auto for_channels = [&](auto&& block) HWY_ATTR __attribute__((always_inline)) {
    for (int64_t c = 0; c < t.channels; c += lanes) block(std::min(c, t.channels - lanes));
  };
  const int64_t reach = (kBlock - 1) * w.stride + (w.kernel - 1) * w.dilation + 1;
  int64_t x = 0;
  for (; x + kBlock <= t.out_width; x += kBlock) {
    const int64_t column = t.left + x * w.stride;
    if (column >= 0 && column + reach <= t.width) {
      for_channels([&](int64_t c) HWY_ATTR
                   __attribute__((always_inline)) { AnyBlock<kBlock, true>(t, w, x, c); });
    } else {
      for_channels([&](int64_t c) HWY_ATTR
                   __attribute__((always_inline)) { AnyBlock<kBlock, false>(t, w, x, c); });
    }
  }
  for (; x < t.out_width; ++x) {
    for_channels([&](int64_t c) HWY_ATTR
                 __attribute__((always_inline)) { AnyBlock<1, false>(t, w, x, c); });
  }
}

// --- pointwise ---

constexpr int kTileHeight = HWY_MAX_BYTES >= 64 ? 12 : 6;

// Computes kHeight pixels from p on, kVectors vectors of columns from m on. `ahead`, if given,
// points to cache lines needed soon, one for each input channel.
template <int kHeight, int kVectors>
HWY_INLINE void PointwiseTile(const PointwiseRows& t, int64_t p, int64_t m, int64_t columns,
                              const float* HWY_RESTRICT b, const float* ahead) {
  const FloatTag d;
  const auto n = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sum[kHeight][kVectors];
  Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
    const FloatVec init = t.bias ? hn::LoadU(d, t.bias + m + v * n) : hn::Zero(d);
    Unroll<kHeight>([&](auto q) HWY_ATTR __attribute__((always_inline)) { sum[q][v] = init; });
  });
  const int64_t k = t.in_channels;
  const float* HWY_RESTRICT a = t.in + p * k;
  const auto add_channel = [&](int64_t c) HWY_ATTR __attribute__((always_inline)) {
    FloatVec y[kVectors];
    Unroll<kVectors>([&](auto v) HWY_ATTR
                     __attribute__((always_inline)) { y[v] = hn::LoadU(d, b + v * n); });
    Unroll<kHeight>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
      const FloatVec x = hn::Set(d, a[q * k + c]);
      Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
        sum[q][v] = hn::MulAdd(x, y[v], sum[q][v]);
      });
    });
    b += kPointwisePanel;
  };
  if (ahead) {
    for (int64_t c = 0; c < k; ++c) {
      __builtin_prefetch(ahead + c * kLineFloats, 0, 2);
      add_channel(c);
    }
  } else {
    for (int64_t c = 0; c < k; ++c) add_channel(c);
  }
  Unroll<kHeight>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
    Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      const int64_t at = (p + q) * t.out_channels + m + v * n, count = columns - v * n;
      FloatVec value = sum[q][v];
      if (t.residual) value = hn::Add(value, LoadFirst(t.residual + at, count));
      StoreFirst(t.relu ? Relu(value) : value, t.out + at, count);
    });
  });
}

// Computes the columns of the panel at m, for kHeight pixels from p on.
template <int kHeight>
void PointwisePanel(const PointwiseRows& t, int64_t p, int64_t m, const float* ahead) {
  const auto n = static_cast<int64_t>(hn::Lanes(FloatTag()));
  const float* panel = t.filter + m * t.in_channels;
  const int64_t columns = std::min(t.out_channels - m, kPointwisePanel);
  for (int64_t v = 0; v < columns; v += 2 * n) {
    const int64_t rest = columns - v;
    if (rest > n)
      PointwiseTile<kHeight, 2>(t, p, m + v, rest, panel + v, ahead);
    else
      PointwiseTile<kHeight, 1>(t, p, m + v, rest, panel + v, ahead);
    ahead = nullptr;
  }
}

// Calls f(p, height) for tiles of pixels.
template <class F>
HWY_INLINE void ForPixelTiles(int64_t pixels, F&& f) {
  int64_t p = 0;
  for (; p + kTileHeight <= pixels; p += kTileHeight)
    f(p, std::integral_constant<int, kTileHeight>());
  for (; p + 4 <= pixels; p += 4) f(p, std::integral_constant<int, 4>());
  for (; p < pixels; ++p) f(p, std::integral_constant<int, 1>());
}

void RunPointwise(const PointwiseRows& t) {
  ForPixelTiles(t.pixels, [&](int64_t p, auto height) HWY_ATTR {
    for (int64_t m = 0; m < t.out_channels; m += kPointwisePanel)
      PointwisePanel<decltype(height)::value>(t, p, m, nullptr);
  });
}

void RunPointwiseFar(const PointwiseRows& t, int64_t first, int64_t last) {
  for (int64_t m = first * kPointwisePanel; m < last * kPointwisePanel; m += kPointwisePanel) {
    const float* next = t.filter + (m + kPointwisePanel) * t.in_channels;
    int64_t lines = m + kPointwisePanel < t.out_channels ? 2 * t.in_channels : 0;
    ForPixelTiles(t.pixels, [&](int64_t p, auto height) HWY_ATTR {
      PointwisePanel<decltype(height)::value>(t, p, m, lines > 0 ? next : nullptr);
      next += t.in_channels * kLineFloats;
      lines -= t.in_channels;
    });
  }
}

bool TwoRows() { return kHasTwoRows; }
int64_t DirectLanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(RunDepthwise);
HWY_EXPORT(RunAnyRow);
HWY_EXPORT(RunPointwise);
HWY_EXPORT(RunPointwiseFar);
HWY_EXPORT(DirectLanes);
HWY_EXPORT(TwoRows);

}  // namespace

bool HasDepthwiseLoop(int64_t kernel_w, int64_t stride_w, int64_t channels) {
  return (kernel_w == 3 || kernel_w == 5) && (stride_w == 1 || stride_w == 2) &&
         channels >= HWY_DYNAMIC_DISPATCH(DirectLanes)();
}
int64_t MaxDepthwiseRows(int64_t stride_h, int64_t stride_w, int64_t dilation_h) {
  const bool two = stride_h == 1 && stride_w == 1 && dilation_h == 1;
  return two && HWY_DYNAMIC_DISPATCH(TwoRows)() ? 2 : 1;
}
void RunDepthwiseRows(const DepthwiseRows& rows, int64_t kernel_w, int64_t stride_w) {
  HWY_DYNAMIC_DISPATCH(RunDepthwise)(rows, kernel_w, stride_w);
}
bool HasAnyDepthwiseRow(int64_t channels) {
  return channels >= HWY_DYNAMIC_DISPATCH(DirectLanes)();
}
void RunAnyDepthwiseRow(const DepthwiseRows& row, const DepthwiseWindows& windows) {
  HWY_DYNAMIC_DISPATCH(RunAnyRow)(row, windows);
}
void RunPointwiseRows(const PointwiseRows& rows) { HWY_DYNAMIC_DISPATCH(RunPointwise)(rows); }
void RunPointwisePanels(const PointwiseRows& rows, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(RunPointwiseFar)(rows, first, last);
}

int64_t PackedPointwiseSize(int64_t in_channels, int64_t out_channels) {
  return (out_channels + kPointwisePanel - 1) / kPointwisePanel * kPointwisePanel * in_channels;
}

}  // namespace coracle::inline internal
#endif
