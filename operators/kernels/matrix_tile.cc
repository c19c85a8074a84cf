#include <coracle/operators/kernels/matrix_tile.h>

#include <algorithm>

// Excludes targets with vector sizes unknown at compile time: they have no arrays of vectors.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/kernels/matrix_tile.cc"
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
constexpr int kMaxHeight = HWY_MAX_BYTES >= 64 ? 8 : 6;

// Loads the first lanes of a vector: LoadFirst with a mask that is computed once.
struct PartialLoad {
  int64_t count;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  hn::Mask<FloatTag> mask = hn::FirstN(FloatTag(), static_cast<size_t>(count));
  HWY_INLINE FloatVec operator()(const float* p) const {
    return hn::MaskedLoad(mask, FloatTag(), p);
  }
#else
  HWY_INLINE FloatVec operator()(const float* p) const { return LoadFirst(p, count); }
#endif
};

template <int kHeight, int kVectors, bool kExact>
void Tile(const MatrixTile& t) {
  const FloatTag d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  const int64_t last = t.lanes - (kVectors - 1) * n;  // lanes of the last vector
  const PartialLoad partial{last};
  FloatVec sum[kHeight][kVectors];
  Unroll<kHeight>([&](auto p) HWY_ATTR __attribute__((always_inline)) {
    Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      sum[p][v] = t.init ? hn::LoadU(d, t.init + v * n) : hn::Zero(d);
    });
  });
  // Local copies: the compiler must assume that the stores change the members.
  const int64_t a_step = t.a_step, a_k = t.a_k, b_k = t.b_k, k = t.k, out_step = t.out_step;
  float* const to = t.out;
  const bool add = t.add;
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* HWY_RESTRICT a = t.a + r * t.a_row;
    const float* HWY_RESTRICT b = t.b + r * t.b_row;
    for (int64_t i = 0; i < k; ++i) {
      FloatVec y[kVectors];
      Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
        y[v] = kExact && v == kVectors - 1 ? partial(b + v * n) : hn::LoadU(d, b + v * n);
      });
      Unroll<kHeight>([&](auto p) HWY_ATTR __attribute__((always_inline)) {
        const FloatVec x = hn::Set(d, a[p * a_step]);
        Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
          sum[p][v] = hn::MulAdd(x, y[v], sum[p][v]);
        });
      });
      a += a_k;
      b += b_k;
    }
  }
  Unroll<kHeight>([&](auto p) HWY_ATTR __attribute__((always_inline)) {
    Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      float* out = to + p * out_step + v * n;
      const int64_t count = v == kVectors - 1 ? last : n;
      FloatVec value = sum[p][v];
      if (add) value = hn::Add(value, LoadFirst(out, count));
      StoreFirst(value, out, count);
    });
  });
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

template <int kHeight, int kColumns>
void Dot(const DotTile& t) {
  const FloatTag d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sum[kHeight][kColumns];
  Unroll<kHeight>([&](auto p) HWY_ATTR __attribute__((always_inline)) {
    Unroll<kColumns>([&](auto q) HWY_ATTR
                     __attribute__((always_inline)) { sum[p][q] = hn::Zero(d); });
  });
  const int64_t a_step = t.a_step, b_k = t.b_k, whole = t.k / n * n;
  const PartialLoad partial{t.k - whole};
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* HWY_RESTRICT a = t.a + r * t.a_row;
    const float* HWY_RESTRICT b = t.b + r * kColumns * b_k;
    for (int64_t i = 0; i < whole; i += n) {
      FloatVec y[kColumns];
      Unroll<kColumns>([&](auto q) HWY_ATTR
                       __attribute__((always_inline)) { y[q] = hn::LoadU(d, b + q * b_k + i); });
      Unroll<kHeight>([&](auto p) HWY_ATTR __attribute__((always_inline)) {
        const FloatVec x = hn::LoadU(d, a + p * a_step + i);
        Unroll<kColumns>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
          sum[p][q] = hn::MulAdd(x, y[q], sum[p][q]);
        });
      });
    }
    if (whole == t.k) continue;
    Unroll<kHeight>([&](auto p) HWY_ATTR __attribute__((always_inline)) {
      const FloatVec x = partial(a + p * a_step + whole);
      Unroll<kColumns>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
        sum[p][q] = hn::MulAdd(x, hn::LoadU(d, b + q * b_k + whole), sum[p][q]);
      });
    });
  }
  Unroll<kHeight>([&](auto p) HWY_ATTR __attribute__((always_inline)) {
    Unroll<kColumns>([&](auto q) HWY_ATTR __attribute__((always_inline)) {
      const float total = hn::GetLane(hn::SumOfLanes(d, sum[p][q]));
      t.out[p * t.out_step + q] = total + (t.init ? t.init[q] : 0.0f);
    });
  });
}

using DotFn = void (*)(const DotTile&);

template <int kHeight>
DotFn DotOfHeight(int columns) {
  constexpr DotFn kByColumns[] = {Dot<kHeight, 1>, Dot<kHeight, 2>, Dot<kHeight, 3>,
                                  Dot<kHeight, 4>};
  return kByColumns[std::min(columns, kMaxDotColumns) - 1];
}

void RunDot(const DotTile& t) {
  const DotFn run = t.height == 1   ? DotOfHeight<1>(t.columns)
                    : t.height == 2 ? DotOfHeight<2>(t.columns)
                    : t.height == 3 ? DotOfHeight<3>(t.columns)
                                    : DotOfHeight<4>(t.columns);
  run(t);
}

int64_t LaneCount() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }
int TileHeight() { return kMaxHeight; }

// Four sums at a time, so that an addition does not wait for the previous one.
void RowTotals(const float* x, int64_t rows, int64_t columns, float* sums) {
  const int64_t n = LaneCount();
  for (int64_t c = 0; c < columns; c += n) {
    const int64_t count = std::min(n, columns - c);
    FloatVec sum[4] = {LoadFirst(sums + c, count), hn::Zero(FloatTag()), hn::Zero(FloatTag()),
                       hn::Zero(FloatTag())};
    const float* at = x + c;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      for (int64_t i = 0; i < 4; ++i) sum[i] = hn::Add(sum[i], LoadFirst(at + i * columns, count));
      at += 4 * columns;
    }
    for (; r < rows; ++r, at += columns) sum[0] = hn::Add(sum[0], LoadFirst(at, count));
    StoreFirst(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])), sums + c, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(RunTile);
HWY_EXPORT(RunDot);
HWY_EXPORT(LaneCount);
HWY_EXPORT(TileHeight);
HWY_EXPORT(RowTotals);

}  // namespace

void RunMatrixTile(const MatrixTile& tile) { HWY_DYNAMIC_DISPATCH(RunTile)(tile); }
void RunDotTile(const DotTile& tile) { HWY_DYNAMIC_DISPATCH(RunDot)(tile); }
int64_t VectorLanes() { return HWY_DYNAMIC_DISPATCH(LaneCount)(); }
int MaxTileHeight() { return HWY_DYNAMIC_DISPATCH(TileHeight)(); }
void AddRows(const float* x, int64_t rows, int64_t columns, float* sums) {
  HWY_DYNAMIC_DISPATCH(RowTotals)(x, rows, columns, sums);
}

}  // namespace coracle::inline internal
#endif
