#include <coracle/operators/common/matrix_tile.h>

#include <algorithm>
#include <utility>

// Arrays of vectors need vectors of a size known to the compiler.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/common/matrix_tile.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/common/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As many accumulators as leave registers for two vectors of b and one element of a.
constexpr int kMaxHeight = HWY_MAX_BYTES >= 64 ? 8 : 6;

template <int kHeight, int kVectors, bool kExact>
void Tile(const MatrixTile& t) {
  const FloatTag d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sum[kHeight][kVectors];
  for (int p = 0; p < kHeight; ++p) {
    for (int v = 0; v < kVectors; ++v)
      sum[p][v] = t.init ? hn::LoadU(d, t.init + v * n) : hn::Zero(d);
  }
  const int64_t last = t.lanes - (kVectors - 1) * n;  // lanes of the last vector
  const int64_t a_step = t.a_step;
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* HWY_RESTRICT a = t.a + r * t.a_row;
    const float* HWY_RESTRICT b = t.b + r * t.b_row;
    for (int64_t i = 0; i < t.k; ++i) {
      FloatVec y[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        y[v] = kExact && v == kVectors - 1 ? LoadFirst(b + v * n, last) : hn::LoadU(d, b + v * n);
      }
      for (int p = 0; p < kHeight; ++p) {
        const FloatVec x = hn::Set(d, a[p * a_step]);
        for (int v = 0; v < kVectors; ++v) sum[p][v] = hn::MulAdd(x, y[v], sum[p][v]);
      }
      a += t.a_k;
      b += t.b_k;
    }
  }
  for (int p = 0; p < kHeight; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      float* out = t.out + p * t.out_step + v * n;
      const int64_t count = v == kVectors - 1 ? last : n;
      FloatVec value = sum[p][v];
      if (t.add) value = hn::Add(value, LoadFirst(out, count));
      StoreFirst(value, out, count);
    }
  }
}

using TileFn = void (*)(const MatrixTile&);

template <int kHeight>
TileFn TileOfHeight(int vectors, bool exact) {
  if (vectors == 1) return exact ? Tile<kHeight, 1, true> : Tile<kHeight, 1, false>;
  return exact ? Tile<kHeight, 2, true> : Tile<kHeight, 2, false>;
}

void RunTile(const MatrixTile& t) {
  const bool exact = t.exact_b;
  TileFn run = nullptr;
  switch (std::min(t.height, kMaxHeight)) {
    case 1:
      run = TileOfHeight<1>(t.vectors, exact);
      break;
    case 2:
      run = TileOfHeight<2>(t.vectors, exact);
      break;
    case 3:
      run = TileOfHeight<3>(t.vectors, exact);
      break;
    case 4:
      run = TileOfHeight<4>(t.vectors, exact);
      break;
    case 5:
      run = TileOfHeight<5>(t.vectors, exact);
      break;
    case 6:
      run = TileOfHeight<6>(t.vectors, exact);
      break;
    case 7:
      run = TileOfHeight<std::min(7, kMaxHeight)>(t.vectors, exact);
      break;
    default:
      run = TileOfHeight<kMaxHeight>(t.vectors, exact);
  }
  run(t);
}

int64_t LaneCount() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }
int TileHeight() { return kMaxHeight; }

void RowTotals(const float* x, int64_t rows, int64_t columns, float* sums) {
  const int64_t n = LaneCount();
  for (int64_t c = 0; c < columns; c += n) {
    const int64_t count = std::min(n, columns - c);
    FloatVec sum = LoadFirst(sums + c, count);
    for (int64_t r = 0; r < rows; ++r) sum = hn::Add(sum, LoadFirst(x + r * columns + c, count));
    StoreFirst(sum, sums + c, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle {
namespace {

HWY_EXPORT(RunTile);
HWY_EXPORT(LaneCount);
HWY_EXPORT(TileHeight);
HWY_EXPORT(RowTotals);

}  // namespace

void RunMatrixTile(const MatrixTile& tile) { HWY_DYNAMIC_DISPATCH(RunTile)(tile); }
int64_t VectorLanes() { return HWY_DYNAMIC_DISPATCH(LaneCount)(); }
int MaxTileHeight() { return HWY_DYNAMIC_DISPATCH(TileHeight)(); }
void AddRows(const float* x, int64_t rows, int64_t columns, float* sums) {
  HWY_DYNAMIC_DISPATCH(RowTotals)(x, rows, columns, sums);
}

}  // namespace coracle
#endif
