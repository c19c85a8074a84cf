#include <coracle/operators/conv/winograd_simd.h>

#include <algorithm>
#include <utility>

// Excludes targets with vector sizes unknown at compile time: they have no arrays of vectors.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/conv/winograd_products.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
#include <coracle/operators/kernels/simd_unroll-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::winograd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using coracle::HWY_NAMESPACE::FloatTag;
using coracle::HWY_NAMESPACE::FloatVec;
using coracle::HWY_NAMESPACE::Unroll;

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

// The largest height whose accumulators leave registers for two vectors of b and one element of a.
constexpr int kMaxHeight = HWY_MAX_BYTES >= 64 ? 12 : 6;
constexpr int kMaxVectors = 2;

// out[p][v] (+)= sum over q, i of a[q * a_outer + i * kInner + p * kStep] * b[q * b_outer + i *
// b_inner + v]; i runs to `inner` for each q, and the pairs (q, i) to k.
struct Product {
  const float* a;
  int64_t a_outer;
  const float* b;
  int64_t b_outer, b_inner, b_vector;
  int64_t inner, k;
  float* out;
  int64_t out_step, out_vector;
  bool add;
};

template <int kInner, int kStep, int kHeight, int kVectors>
void Block(const Product& t) {
  const FloatTag d;
  FloatVec sum[kHeight][kVectors];
  Unroll<kHeight>([&](auto p) HWY_ATTR __attribute__((always_inline)) {
    Unroll<kVectors>([&](auto v) HWY_ATTR
                     __attribute__((always_inline)) { sum[p][v] = hn::Zero(d); });
  });
  const int64_t b_inner = t.b_inner, b_vector = t.b_vector;
  const float* a_outer = t.a;
  const float* b_outer = t.b;
  for (int64_t left = t.k; left > 0; left -= t.inner) {
    const float* HWY_RESTRICT a = a_outer;
    const float* HWY_RESTRICT b = b_outer;
    const int64_t count = std::min(t.inner, left);
    a_outer += t.a_outer;
    b_outer += t.b_outer;
    for (int64_t i = 0; i < count; ++i) {
      FloatVec y[kVectors];
      Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
        y[v] = hn::LoadU(d, b + v * b_vector);
        hwy::Prefetch(b + t.b_outer + v * b_vector);
      });
      Unroll<kHeight>([&](auto p) HWY_ATTR __attribute__((always_inline)) {
        const FloatVec x = hn::Set(d, a[p * kStep]);
        Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
          sum[p][v] = hn::MulAdd(x, y[v], sum[p][v]);
        });
      });
      a += kInner;
      b += b_inner;
    }
  }
  Unroll<kHeight>([&](auto p) HWY_ATTR __attribute__((always_inline)) {
    Unroll<kVectors>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      float* to = t.out + p * t.out_step + v * t.out_vector;
      hn::StoreU(t.add ? hn::Add(hn::LoadU(d, to), sum[p][v]) : sum[p][v], d, to);
    });
  });
}

using BlockFn = void (*)(const Product&);

template <int kInner, int kStep, int kVectors, int... kHeights>
BlockFn BlockOf(std::integer_sequence<int, kHeights...>, int64_t height) {
  static constexpr BlockFn kByHeight[] = {Block<kInner, kStep, kHeights + 1, kVectors>...};
  return kByHeight[height - 1];
}

// Computes `height` rows, cut into parts of about equal height, and the columns [0, width). The
// first kChunk columns of b and out are `b_chunk` and `out_chunk` before the others.
template <int kInner, int kStep, int kHighest>
HWY_INLINE void Rows(Product t, int64_t height, int64_t width, int64_t b_chunk, int64_t out_chunk) {
  const auto heights = std::make_integer_sequence<int, kHighest>();
  const int64_t lanes = Lanes();
  t.b_vector = lanes < kChunk ? lanes : b_chunk;
  t.out_vector = lanes < kChunk ? lanes : out_chunk;
  const int64_t parts = (height + kHighest - 1) / kHighest;
  const float *a = t.a, *b = t.b;
  float* out = t.out;
  for (int64_t v = 0; v < width; v += kMaxVectors * lanes) {
    const bool both = v + lanes < width;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = height * part / parts, end = height * (part + 1) / parts;
      t.a = a + begin * kStep;
      t.b = b + v / kChunk * b_chunk + v % kChunk;
      t.out = out + begin * t.out_step + v / kChunk * out_chunk + v % kChunk;
      (both ? BlockOf<kInner, kStep, 2>(heights, end - begin)
            : BlockOf<kInner, kStep, 1>(heights, end - begin))(t);
    }
  }
}

void TileProducts(int m, const TileRange& tiles, int64_t rows, int64_t columns, const float* v,
                  const float* u, float* x) {
  Product product;
  product.a_outer = TileChunk(m);
  product.b_outer = FilterChunk(m);
  product.b_inner = kChunk;
  product.inner = kChunk;
  product.k = rows;
  product.out_step = kChunk;
  product.add = false;
  for (int64_t n = 0; n < columns; n += kPanel) {
    for (int64_t g = 0; g < tiles.Groups(); ++g) {
      product.a = v + g * TileGroup(m, rows);
      product.b = u + n / kChunk * FilterColumns(m, rows);
      product.out = x + g * TileGroup(m, columns) + n / kChunk * TileChunk(m);
      Rows<1, kChunk, kMaxHeight>(product, tiles.InGroup(g), std::min(kPanel, columns - n),
                                  FilterColumns(m, rows), TileChunk(m));
    }
  }
}

void SumsOverTiles(int m, const TileRange& tiles, int64_t rows, int64_t columns, int64_t channels,
                   const float* v, const float* y, bool add, float* s) {
  Product product;
  product.a_outer = TileGroup(m, rows);
  product.b_outer = TileGroup(m, channels);
  product.b_inner = kChunk;
  product.inner = tiles.in_group;
  product.k = tiles.count;
  product.out_step = kChunk;
  product.add = add;
  for (int64_t n = 0; n < columns; n += kPanel) {
    for (int64_t k = 0; k < rows; k += kChunk) {
      product.a = v + k / kChunk * TileChunk(m);
      product.b = y + n / kChunk * TileChunk(m);
      product.out = s + n / kChunk * FilterColumns(m, rows) + k / kChunk * FilterChunk(m);
      Rows<kChunk, 1, std::min(kMaxHeight, 8)>(product, std::min(kChunk, rows - k),
                                               std::min(kPanel, columns - n), TileChunk(m),
                                               FilterColumns(m, rows));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::winograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::winograd {
namespace {

HWY_EXPORT(TileProducts);
HWY_EXPORT(SumsOverTiles);

}  // namespace

void MultiplyTiles(int m, const TileRange& tiles, int64_t rows, int64_t columns, const float* v,
                   const float* u, float* x) {
  HWY_DYNAMIC_DISPATCH(TileProducts)(m, tiles, rows, columns, v, u, x);
}
void MultiplyOverTiles(int m, const TileRange& tiles, int64_t rows, int64_t columns,
                       int64_t channels, const float* v, const float* y, bool add, float* s) {
  HWY_DYNAMIC_DISPATCH(SumsOverTiles)(m, tiles, rows, columns, channels, v, y, add, s);
}

}  // namespace coracle::winograd
#endif
