#include <coracle/operators/kernels/window_products.h>

#include <algorithm>
#include <type_traits>

// Excludes targets with vector sizes unknown at compile time: they have no arrays of vectors.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/kernels/window_products.cc"
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

// The largest height whose accumulators leave registers for two vectors of b and one element of a.
constexpr int kWindowHeight = HWY_MAX_BYTES >= 64 ? 12 : 6;
// Rows of a panel that stay in the first-level cache while all tiles of a unit use them.
constexpr int64_t kBlockRows = 256;
// Pixels of a unit: the part of the image that they read stays in the second-level cache for
// all panels.
constexpr int64_t kUnitPixels = 32 * kWindowHeight;

int64_t PanelColumns() { return 2 * static_cast<int64_t>(hn::Lanes(FloatTag())); }

// Rows [begin, end) of the filter for a panel from column m on.
struct RowBlock {
  int64_t begin, end, m;
  const float* filter;
  int64_t ahead;  // floats to the data that is needed soon; 0: none
};

// The kind of a tile. kWhole: its columns fill its vectors.
template <int kTileHeight, int kTileVectors, bool kIsWhole, bool kAsksAhead>
struct TileKind {
  static constexpr int kHeight = kTileHeight, kVectors = kTileVectors;
  static constexpr bool kWhole = kIsWhole, kAhead = kAsksAhead;
};

// Computes kHeight pixels from p on, kVectors vectors of columns. `out` holds the sums of
// earlier blocks.
template <class Kind>
void WindowTile(const WindowProducts& t, int64_t p, const RowBlock& block) {
  constexpr int kHeight = Kind::kHeight, kVectors = Kind::kVectors;
  const FloatTag d;
  const auto n = static_cast<int64_t>(hn::Lanes(d));
  // Local copies: the compiler must assume that the stores change the members.
  const int64_t stride = t.columns, columns = stride - block.m;
  const auto load = [&](const float* from, int64_t at) HWY_ATTR {
    if constexpr (Kind::kWhole) return hn::LoadU(d, from + at);
    return LoadFirst(from + at, columns - at);
  };
  const bool first = block.begin == 0, last = block.end == t.taps * t.channels;
  float* out = t.out + p * stride + block.m;
  FloatVec sum[kHeight][kVectors];
  if (first) {
    Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      const FloatVec bias = t.bias ? load(t.bias + block.m, v * n) : hn::Zero(d);
      Unroll<kHeight>([&](auto q) HWY_ATTR __attribute__((always_inline)) { sum[q][v] = bias; });
    });
  }
  if (!first || t.residual) {
    const float* from = first ? t.residual + p * stride + block.m : out;
    Unroll<kHeight>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
      Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
        const FloatVec value = load(from + q * stride, v * n);
        sum[q][v] = first ? hn::Add(sum[q][v], value) : value;
      });
    });
  }
  const float* HWY_RESTRICT b = block.filter;
  for (int64_t row = block.begin; row < block.end;) {
    const int64_t tap = t.offsets ? row / t.channels : 0, c = row - tap * t.channels;
    const int64_t count = std::min(t.channels - c, block.end - row);
    const float* a[kHeight];
    Unroll<kHeight>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
      const int64_t at = t.offsets ? t.offsets[tap * t.pixels + p + q] : (p + q) * t.channels;
      a[q] = (at < 0 ? t.zeros : t.in + at) + c;
    });
    for (int64_t i = 0; i < count; ++i, b += 2 * n) {
      FloatVec y[kVectors];
      Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
        if constexpr (Kind::kAhead) __builtin_prefetch(b + block.ahead + v * n, 0, 3);
        y[v] = hn::LoadU(d, b + v * n);
      });
      Unroll<kHeight>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
        const FloatVec x = hn::Set(d, a[q][i]);
        Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
          sum[q][v] = hn::MulAdd(x, y[v], sum[q][v]);
        });
      });
    }
    row += count;
  }
  if (last && t.relu) {
    Unroll<kHeight>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
      Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
        // Not Max, because a nan must stay nan.
        sum[q][v] = hn::IfThenZeroElse(hn::Lt(sum[q][v], hn::Zero(d)), sum[q][v]);
      });
    });
  }
  Unroll<kHeight>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
    Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      float* to = out + q * stride + v * n;
      if constexpr (Kind::kWhole)
        hn::StoreU(sum[q][v], d, to);
      else
        StoreFirst(sum[q][v], to, columns - v * n);
    });
  });
}

template <int kHeight, bool kAhead>
void WindowTileOf(const WindowProducts& t, int64_t p, const RowBlock& block) {
  const int64_t columns = t.columns - block.m, lanes = PanelColumns() / 2;
  if (columns >= 2 * lanes)
    WindowTile<TileKind<kHeight, 2, true, kAhead>>(t, p, block);
  else if (columns > lanes)
    WindowTile<TileKind<kHeight, 2, false, kAhead>>(t, p, block);
  else
    WindowTile<TileKind<kHeight, 1, false, kAhead>>(t, p, block);
}

// Computes the tiles of pixels [begin, end). The first tile prefetches the next block.
void WindowBlock(const WindowProducts& t, int64_t begin, int64_t end, const RowBlock& block) {
  int64_t p = begin;
  const auto tile = [&](auto height) HWY_ATTR {
    constexpr int kHeight = decltype(height)::value;
    if (p == begin && block.ahead > 0)
      WindowTileOf<kHeight, true>(t, p, block);
    else
      WindowTileOf<kHeight, false>(t, p, block);
    p += kHeight;
  };
  if constexpr (kWindowHeight == 6) {
    // Tiles have about the same height: a tile of 6 takes 6 / 5 of the time of a tile of 5, but a
    // tile of 1 waits for its sums and takes as long as a tile of 4. So 49 pixels are 4 tiles of 6
    // and 5 of 5.
    for (int64_t rest = end - p; rest >= 4; rest = end - p) {
      const int64_t tiles = (rest + kWindowHeight - 1) / kWindowHeight;
      const int64_t height = (rest + tiles - 1) / tiles;
      if (height == 6)
        tile(std::integral_constant<int, 6>());
      else if (height == 5)
        tile(std::integral_constant<int, 5>());
      else
        tile(std::integral_constant<int, 4>());
    }
  } else {
    while (p + kWindowHeight <= end) tile(std::integral_constant<int, kWindowHeight>());
    while (p + 4 <= end) tile(std::integral_constant<int, 4>());
  }
  while (p + 2 <= end) tile(std::integral_constant<int, 2>());
  while (p < end) tile(std::integral_constant<int, 1>());
}

int64_t WindowPanels(const WindowProducts& t) {
  return (t.columns + PanelColumns() - 1) / PanelColumns();
}
int64_t WindowUnits(const WindowProducts& t) {
  return WindowPanels(t) * ((t.pixels + kUnitPixels - 1) / kUnitPixels);
}

void WindowUnit(const WindowProducts& t, int64_t unit) {
  const int64_t panels = WindowPanels(t), parts = WindowUnits(t) / panels;
  const int64_t part = unit / panels, rows = t.taps * t.channels;
  RowBlock block;
  block.m = unit % panels * PanelColumns();
  for (block.begin = 0; block.begin < rows; block.begin = block.end) {
    block.end = std::min(block.begin + kBlockRows, rows);
    block.filter = t.filter + block.m * rows + block.begin * PanelColumns();
    const bool more = block.end < rows || block.m + PanelColumns() < t.columns;
    block.ahead = more ? (block.end - block.begin) * PanelColumns() : 0;
    WindowBlock(t, t.pixels * part / parts, t.pixels * (part + 1) / parts, block);
  }
}

void WindowUnitsOf(const WindowProducts& t, int64_t first, int64_t last) {
  for (int64_t unit = first; unit < last; ++unit) WindowUnit(t, unit);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(PanelColumns);
HWY_EXPORT(WindowUnits);
HWY_EXPORT(WindowUnitsOf);

}  // namespace

int64_t NumWindowUnits(const WindowProducts& products) {
  return HWY_DYNAMIC_DISPATCH(WindowUnits)(products);
}
void RunWindowUnits(const WindowProducts& products, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(WindowUnitsOf)(products, first, last);
}
int64_t PackedWindowSize(int64_t rows, int64_t columns) {
  const int64_t panel = HWY_DYNAMIC_DISPATCH(PanelColumns)();
  return (columns + panel - 1) / panel * panel * rows;
}
int64_t PackedWindowAt(int64_t rows, int64_t row, int64_t column) {
  const int64_t panel = HWY_DYNAMIC_DISPATCH(PanelColumns)();
  return column / panel * panel * rows + row * panel + column % panel;
}

}  // namespace coracle::inline internal
#endif
