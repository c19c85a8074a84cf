#include <coracle/operators/conv/winograd_simd.h>

#include <algorithm>
#include <cstring>

// Excludes targets with vector sizes unknown at compile time: they have no arrays of vectors.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/conv/winograd_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::winograd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using coracle::HWY_NAMESPACE::FloatTag;
using coracle::HWY_NAMESPACE::FloatVec;
using coracle::HWY_NAMESPACE::LoadFirst;
using coracle::HWY_NAMESPACE::StoreFirst;

HWY_INLINE FloatVec Of(double value) { return hn::Set(FloatTag(), static_cast<float>(value)); }
HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

// --- the transforms of one axis ---

template <int kM>
struct Axis;

// Points 0, 1, -1.
template <>
struct Axis<2> {
  // v = B^T d
  static HWY_INLINE void Input(const FloatVec* d, FloatVec* v) {
    v[0] = hn::Sub(d[2], d[0]);
    v[1] = hn::Add(d[2], d[1]);
    v[2] = hn::Sub(d[2], d[1]);
    v[3] = hn::Sub(d[3], d[1]);
  }
  // y = A^T x
  static HWY_INLINE void Output(const FloatVec* x, FloatVec* y) {
    y[0] = hn::Add(x[0], hn::Add(x[1], x[2]));
    y[1] = hn::Add(hn::Sub(x[1], x[2]), x[3]);
  }
  // x = A y
  static HWY_INLINE void OutputGrad(const FloatVec* y, FloatVec* x) {
    x[0] = y[0];
    x[1] = hn::Add(y[0], y[1]);
    x[2] = hn::Sub(y[0], y[1]);
    x[3] = y[1];
  }
  // u = G f
  static HWY_INLINE void Filter(const FloatVec* f, FloatVec* u) {
    const FloatVec half = Of(0.5);
    const FloatVec even = hn::Mul(half, hn::Add(f[0], f[2])), odd = hn::Mul(half, f[1]);
    u[0] = hn::Neg(f[0]);
    u[1] = hn::Add(even, odd);
    u[2] = hn::Sub(even, odd);
    u[3] = f[2];
  }
  // f = G^T u
  static HWY_INLINE void FilterGrad(const FloatVec* u, FloatVec* f) {
    const FloatVec half = Of(0.5);
    const FloatVec sum = hn::Mul(half, hn::Add(u[1], u[2]));
    f[0] = hn::Sub(sum, u[0]);
    f[1] = hn::Mul(half, hn::Sub(u[1], u[2]));
    f[2] = hn::Add(sum, u[3]);
  }
  // f = {u0, u1 - u2, u3}, element by element times these.
  static constexpr double kInverse[3] = {-1, 1, 1};
};

// Points 0, +-a, +-b; the rows of +p and -p have equal even and opposite odd terms.
template <>
struct Axis<4> {
  static constexpr double a = 0.625, b = 1.5, aa = a * a, bb = b * b;
  // The products of differences of 0, +-a, +-b.
  static constexpr double n0 = aa * bb, na = 2 * aa * (aa - bb), nb = 2 * bb * (bb - aa);

  static HWY_INLINE void Input(const FloatVec* d, FloatVec* v) {
    const FloatVec product = Of(aa * bb), sum = Of(aa + bb);
    v[0] = hn::MulAdd(product, d[0], hn::NegMulAdd(sum, d[2], d[4]));
    v[5] = hn::MulAdd(product, d[1], hn::NegMulAdd(sum, d[3], d[5]));
    Pair(bb, a, d, v + 1);
    Pair(aa, b, d, v + 3);
  }
  static HWY_INLINE void Output(const FloatVec* x, FloatVec* y) {
    const FloatVec s1 = hn::Add(x[1], x[2]), d1 = hn::Sub(x[1], x[2]);
    const FloatVec s2 = hn::Add(x[3], x[4]), d2 = hn::Sub(x[3], x[4]);
    y[0] = hn::Add(x[0], hn::Add(s1, s2));
    y[1] = hn::MulAdd(Of(a), d1, hn::Mul(Of(b), d2));
    y[2] = hn::MulAdd(Of(aa), s1, hn::Mul(Of(bb), s2));
    y[3] = hn::MulAdd(Of(a * aa), d1, hn::MulAdd(Of(b * bb), d2, x[5]));
  }
  static HWY_INLINE void OutputGrad(const FloatVec* y, FloatVec* x) {
    x[0] = y[0];
    Powers(a, y, x + 1);
    Powers(b, y, x + 3);
    x[5] = y[3];
  }
  static HWY_INLINE void Filter(const FloatVec* f, FloatVec* u) {
    u[0] = hn::Mul(Of(1 / n0), f[0]);
    Row(1 / na, a / na, aa / na, f, u + 1);
    Row(1 / nb, b / nb, bb / nb, f, u + 3);
    u[5] = f[2];
  }
  static HWY_INLINE void FilterGrad(const FloatVec* u, FloatVec* f) {
    const FloatVec s1 = hn::Add(u[1], u[2]), d1 = hn::Sub(u[1], u[2]);
    const FloatVec s2 = hn::Add(u[3], u[4]), d2 = hn::Sub(u[3], u[4]);
    f[0] = hn::MulAdd(Of(1 / n0), u[0], hn::MulAdd(Of(1 / na), s1, hn::Mul(Of(1 / nb), s2)));
    f[1] = hn::MulAdd(Of(a / na), d1, hn::Mul(Of(b / nb), d2));
    f[2] = hn::MulAdd(Of(aa / na), s1, hn::MulAdd(Of(bb / nb), s2, u[5]));
  }
  // f = {u0, u1 - u2, u5}, element by element times these.
  static constexpr double kInverse[3] = {n0, na / (2 * a), 1};

 private:
  // d4 - cc d2 +- p (d3 - cc d1)
  static HWY_INLINE void Pair(double cc, double p, const FloatVec* d, FloatVec* v) {
    const FloatVec even = hn::NegMulAdd(Of(cc), d[2], d[4]);
    const FloatVec odd = hn::NegMulAdd(Of(cc), d[1], d[3]);
    v[0] = hn::MulAdd(Of(p), odd, even);
    v[1] = hn::NegMulAdd(Of(p), odd, even);
  }
  // y0 + p^2 y2 +- p (y1 + p^2 y3)
  static HWY_INLINE void Powers(double p, const FloatVec* y, FloatVec* x) {
    const FloatVec even = hn::MulAdd(Of(p * p), y[2], y[0]);
    const FloatVec odd = hn::MulAdd(Of(p * p), y[3], y[1]);
    x[0] = hn::MulAdd(Of(p), odd, even);
    x[1] = hn::NegMulAdd(Of(p), odd, even);
  }
  // c0 f0 + c2 f2 +- c1 f1
  static HWY_INLINE void Row(double c0, double c1, double c2, const FloatVec* f, FloatVec* u) {
    const FloatVec even = hn::MulAdd(Of(c0), f[0], hn::Mul(Of(c2), f[2]));
    u[0] = hn::MulAdd(Of(c1), f[1], even);
    u[1] = hn::NegMulAdd(Of(c1), f[1], even);
  }
};

// --- tiles ---

// Iterates over tiles.
struct TileWalk {
  const Tiling& t;
  int64_t column, row, image;

  TileWalk(const Tiling& tiling, int64_t first)
      : t(tiling),
        column(first % t.columns),
        row(first / t.columns % t.rows),
        image(first / t.columns / t.rows) {}
  void Next() {
    if (++column < t.columns) return;
    column = 0;
    if (++row < t.rows) return;
    row = 0;
    ++image;
  }
  int64_t Top() const { return row * t.step - t.top; }
  int64_t Left() const { return column * t.step - t.left; }
};

// The addresses of the pixels of a tile.
template <int kSize>
HWY_INLINE void FindPixels(const Tiling& t, const float* images, const float* zeros,
                           const TileWalk& tile, const float** at) {
  const int64_t y = tile.Top(), x = tile.Left(), row = t.width * t.channels;
  const int64_t first = ((tile.image * t.height + y) * t.width + x) * t.channels;
  if (y >= 0 && x >= 0 && y + kSize <= t.height && x + kSize <= t.width) {
    for (int i = 0; i < kSize; ++i) {
      for (int j = 0; j < kSize; ++j)
        at[i * kSize + j] = images + (first + i * row + j * t.channels);
    }
    return;
  }
  for (int i = 0; i < kSize; ++i) {
    const bool inside = y + i >= 0 && y + i < t.height;
    for (int j = 0; j < kSize; ++j) {
      const bool pixel = inside && x + j >= 0 && x + j < t.width;
      at[i * kSize + j] = pixel ? images + (first + i * row + j * t.channels) : zeros;
    }
  }
}

// Transforms kSize x kSize pixels at `at` to kN x kN positions.
template <int kSize, int kN, void (*kOf)(const FloatVec*, FloatVec*), bool kWhole>
HWY_INLINE void TransformPixels(const float* const* at, int64_t c, int64_t count, float* out) {
  const FloatTag d;
  FloatVec half[kSize][kN];
  for (int j = 0; j < kSize; ++j) {
    FloatVec x[kSize];
    for (int i = 0; i < kSize; ++i) {
      const float* from = at[i * kSize + j] + c;
      x[i] = kWhole ? hn::LoadU(d, from) : LoadFirst(from, count);
    }
    kOf(x, half[j]);
  }
  for (int i = 0; i < kN; ++i) {
    FloatVec x[kSize], v[kN];
    for (int j = 0; j < kSize; ++j) x[j] = half[j][i];
    kOf(x, v);
    for (int j = 0; j < kN; ++j) hn::StoreU(v[j], d, out + (i * kN + j) * kTilePosition);
  }
}

// Processes a group chunk by chunk, so that the writes stay within a few pages.
template <int kSize, int kN, void (*kOf)(const FloatVec*, FloatVec*)>
void TransformTiles(const Tiling& from, const TileRange& tiles, const float* images,
                    const float* zeros, int64_t channels, float* out) {
  const int64_t lanes = Lanes();
  TileWalk walk(from, tiles.first);
  for (int64_t g = 0; g < tiles.Groups(); ++g) {
    const float* at[kGroup][kSize * kSize];
    const int64_t count = tiles.InGroup(g);
    for (int64_t i = 0; i < count; ++i, walk.Next())
      FindPixels<kSize>(from, images, zeros, walk, at[i]);
    for (int64_t c = 0; c < channels; c += lanes) {
      const bool whole = c + lanes <= channels;
      for (int64_t i = 0; i < count; ++i) {
        float* to = out + i * kChunk + c % kChunk;
        if (whole) {
          TransformPixels<kSize, kN, kOf, true>(at[i], c, lanes, to);
        } else {
          TransformPixels<kSize, kN, kOf, false>(at[i], c, channels - c, to);
        }
      }
      if ((c + lanes) % kChunk == 0 || c + lanes >= channels) out += kN * kN * kTilePosition;
    }
  }
}

void Inputs(int m, const Tiling& from, const TileRange& tiles, const float* images,
            const float* zeros, float* out) {
  if (m == 2) {
    TransformTiles<4, 4, Axis<2>::Input>(from, tiles, images, zeros, from.channels, out);
  } else {
    TransformTiles<6, 6, Axis<4>::Input>(from, tiles, images, zeros, from.channels, out);
  }
}

void OutputGrads(int m, const Tiling& from, const TileRange& tiles, const float* images,
                 const float* zeros, int64_t channels, float* out) {
  if (m == 2) {
    TransformTiles<2, 4, Axis<2>::OutputGrad>(from, tiles, images, zeros, channels, out);
  } else {
    TransformTiles<4, 6, Axis<4>::OutputGrad>(from, tiles, images, zeros, channels, out);
  }
}

template <int kM>
void OutputTiles(const Tiling& to, const TileRange& tiles, const float* x, int64_t channel,
                 int64_t channels, const Epilogue& epilogue, float* images) {
  constexpr int kN = Points(kM);
  const FloatTag d;
  const int64_t lanes = Lanes();
  TileWalk walk(to, tiles.first);
  for (int64_t i = 0; i < tiles.count; ++i, walk.Next()) {
    const int64_t place =
        i / tiles.in_group * TileGroup(kM, channels) + i % tiles.in_group * kChunk;
    const int64_t top = walk.Top(), left = walk.Left();
    const int64_t height = std::min<int64_t>(kM, to.height - top);
    const int64_t width = std::min<int64_t>(kM, to.width - left);
    const int64_t first =
        ((walk.image * to.height + top) * to.width + left) * to.channels + channel;
    for (int64_t c = 0; c < channels; c += lanes) {
      const float* from = x + place + c / kChunk * TileChunk(kM) + c % kChunk;
      const int64_t count = std::min(lanes, channels - c);
      FloatVec half[kN][kM];
      for (int j = 0; j < kN; ++j) {
        FloatVec v[kN];
        for (int k = 0; k < kN; ++k) v[k] = hn::LoadU(d, from + (k * kN + j) * kTilePosition);
        Axis<kM>::Output(v, half[j]);
      }
      const FloatVec bias =
          epilogue.bias ? LoadFirst(epilogue.bias + channel + c, count) : hn::Zero(d);
      for (int k = 0; k < kM; ++k) {
        if (k >= height) break;
        FloatVec v[kN], y[kM];
        for (int j = 0; j < kN; ++j) v[j] = half[j][k];
        Axis<kM>::Output(v, y);
        const int64_t row = first + k * to.width * to.channels + c;
        for (int j = 0; j < kM; ++j) {
          if (j >= width) break;
          const int64_t pixel = row + j * to.channels;
          FloatVec value = hn::Add(y[j], bias);
          if (epilogue.residual)
            value = hn::Add(value, LoadFirst(epilogue.residual + pixel, count));
          // Not Max, because a nan must stay nan.
          if (epilogue.relu) value = hn::IfThenElse(hn::Lt(value, hn::Zero(d)), hn::Zero(d), value);
          StoreFirst(value, images + pixel, count);
        }
      }
    }
    for (int64_t k = 0; epilogue.activation && k < height; ++k) {
      for (int64_t j = 0; j < width; ++j) {
        epilogue.activation(epilogue.context, images + first + (k * to.width + j) * to.channels,
                            channels);
      }
    }
  }
}

void Outputs(int m, const Tiling& to, const TileRange& tiles, const float* x, int64_t channel,
             int64_t channels, const Epilogue& epilogue, float* images) {
  if (m == 2) {
    OutputTiles<2>(to, tiles, x, channel, channels, epilogue, images);
  } else {
    OutputTiles<4>(to, tiles, x, channel, channels, epilogue, images);
  }
}

// --- filters ---

// One element of each of `count` kernels.
HWY_INLINE FloatVec LoadTaps(const float* from, int64_t column, int64_t count) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  if (count == Lanes())
    return hn::GatherIndex(d, from,
                           hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(column))));
  HWY_ALIGN float some[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t q = 0; q < count; ++q) some[q] = from[q * column];
  return hn::Load(d, some);
}

// Destinations of the differences of the next kernels, and of the next listed bits.
struct Corrections {
  int8_t* differences;
  int32_t* listed;
};

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;
using ByteTag = hn::Rebind<int8_t, IntTag>;

// Recovers the kernels f, by columns, from `u` = G f G^T, up to rounding. The results have the same
// bits wherever this is inlined and however the thread treats denormals: no sum has a product that
// the compiler could contract, and tiny values and nan become 0. The loaded values are then
// multiples of 2^-123, so that their sums are not denormal.
template <int kM>
HWY_INLINE void RecoverKernels(const float* u, FloatVec* f) {
  constexpr int kN = Points(kM), kAt[4] = {0, 1, 2, kN - 1};
  const FloatTag d;
  FloatVec half[4][3];
  for (int j = 0; j < 4; ++j) {
    FloatVec x[4];
    for (int i = 0; i < 4; ++i) {
      const FloatVec at = hn::LoadU(d, u + (kAt[i] * kN + kAt[j]) * kFilterPosition);
      x[i] = hn::IfThenElseZero(hn::Ge(hn::Abs(at), Of(0x1p-100)), at);
    }
    half[j][0] = x[0];
    half[j][1] = hn::Sub(x[1], x[2]);
    half[j][2] = x[3];
  }
  const FloatVec least = Of(0x1p-80);
  for (int i = 0; i < 3; ++i) {
    const FloatVec row[3] = {half[0][i], hn::Sub(half[1][i], half[2][i]), half[3][i]};
    for (int j = 0; j < 3; ++j) {
      const FloatVec x = hn::Mul(row[j], Of(Axis<kM>::kInverse[i] * Axis<kM>::kInverse[j]));
      f[j * 3 + i] = hn::IfThenElseZero(hn::Ge(hn::Abs(x), least), x);
    }
  }
}

// `u` is G f G^T, with the kernels f by columns.
template <int kM>
HWY_INLINE void AppendCorrections(const float* u, const FloatVec* f, int8_t* differences,
                                  int32_t** listed) {
  const IntTag d;
  const IntVec low = hn::Set(d, kListed), high = hn::Set(d, -kListed);
  FloatVec recovered[kTaps];
  RecoverKernels<kM>(u, recovered);
  for (int t = 0; t < kTaps; ++t) {
    const IntVec bits = hn::BitCast(d, f[t]);
    // This may overflow; the sum then overflows back.
    const IntVec difference = hn::Sub(bits, hn::BitCast(d, recovered[t]));
    const auto is_near = hn::And(hn::Gt(difference, low), hn::Lt(difference, high));
    hn::StoreU(hn::DemoteTo(ByteTag(), hn::IfThenElse(is_near, difference, low)), ByteTag(),
               differences + t * kChunk);
    if (hn::AllTrue(d, is_near)) continue;
    *listed += hn::CompressStore(bits, hn::Not(is_near), d, *listed);
  }
}

template <int kM, bool kExactly>
void FilterPanels(const FilterMatrix& matrix, const float* filter, int64_t begin, int64_t end,
                  float* out, Corrections* corrections) {
  constexpr int kN = Points(kM);
  const FloatTag d;
  const int64_t lanes = Lanes();
  const int64_t last = std::min(end * kPanel, matrix.columns);
  for (int64_t n = begin * kPanel; n < last; n += kChunk, out += FilterColumns(kM, matrix.rows)) {
    const int64_t columns = std::min(kChunk, last - n);
    for (int64_t k = 0; k < matrix.rows; ++k) {
      for (int64_t v = 0; v < columns; v += lanes) {
        const int64_t count = std::min(lanes, columns - v);
        const float* from = filter + k * matrix.row + (n + v) * matrix.column;
        FloatVec f[kTaps], half[3][kN];
        for (int j = 0; j < 3; ++j) {
          for (int i = 0; i < 3; ++i) {
            const int tap = i * 3 + j;
            f[j * 3 + i] =
                LoadTaps(from + (matrix.rotated ? kTaps - 1 - tap : tap), matrix.column, count);
          }
          Axis<kM>::Filter(f + j * 3, half[j]);
        }
        float* to = out + k / kChunk * FilterChunk(kM) + k % kChunk * kChunk + v;
        for (int i = 0; i < kN; ++i) {
          const FloatVec x[3] = {half[0][i], half[1][i], half[2][i]};
          FloatVec u[kN];
          Axis<kM>::Filter(x, u);
          for (int j = 0; j < kN; ++j) hn::StoreU(u[j], d, to + (i * kN + j) * kFilterPosition);
        }
        if constexpr (kExactly)
          AppendCorrections<kM>(to, f, corrections->differences + v, &corrections->listed);
      }
      if constexpr (kExactly) corrections->differences += kTaps * kChunk;
    }
  }
}

void Filters(int m, const FilterMatrix& matrix, const float* filter, int64_t begin, int64_t end,
             float* out) {
  if (m == 2) {
    FilterPanels<2, false>(matrix, filter, begin, end, out, nullptr);
  } else {
    FilterPanels<4, false>(matrix, filter, begin, end, out, nullptr);
  }
}

int64_t ExactFilters(int m, const FilterMatrix& matrix, const float* filter, int64_t panel,
                     float* out, int8_t* differences, int32_t* listed) {
  Corrections corrections{differences, listed};
  if (m == 2) {
    FilterPanels<2, true>(matrix, filter, panel, panel + 1, out, &corrections);
  } else {
    FilterPanels<4, true>(matrix, filter, panel, panel + 1, out, &corrections);
  }
  return corrections.listed - listed;
}

template <int kM>
void RestorePanel(const FilterMatrix& matrix, const float* u, const int8_t* differences,
                  const int32_t* listed, int64_t panel, float* filter) {
  const IntTag d;
  const int64_t lanes = Lanes();
  const int64_t last = std::min((panel + 1) * kPanel, matrix.columns);
  for (int64_t n = panel * kPanel; n < last; n += kChunk, u += FilterColumns(kM, matrix.rows)) {
    const int64_t columns = std::min(kChunk, last - n);
    for (int64_t k = 0; k < matrix.rows; ++k, differences += kTaps * kChunk) {
      HWY_ALIGN int32_t taps[kTaps * kChunk];
      for (int64_t v = 0; v < columns; v += lanes) {
        FloatVec f[kTaps];
        RecoverKernels<kM>(u + k / kChunk * FilterChunk(kM) + k % kChunk * kChunk + v, f);
        for (int t = 0; t < kTaps; ++t) {
          const int8_t* its = differences + t * kChunk + v;
          int32_t* to = taps + t * kChunk + v;
          const IntVec difference = hn::PromoteTo(d, hn::LoadU(ByteTag(), its));
          hn::StoreU(hn::Add(hn::BitCast(d, f[t]), difference), d, to);
          if (hn::AllFalse(d, hn::Eq(difference, hn::Set(d, kListed)))) continue;
          for (int64_t q = 0; q < lanes; ++q) {
            if (its[q] == kListed) to[q] = *listed++;
          }
        }
      }
      float* to = filter + k * matrix.row + n * matrix.column;
      for (int64_t v = 0; v < columns; ++v) {
        for (int t = 0; t < kTaps; ++t)
          std::memcpy(to + v * matrix.column + t, taps + (t % 3 * 3 + t / 3) * kChunk + v,
                      sizeof *to);
      }
    }
  }
}

void Restore(int m, const FilterMatrix& matrix, const float* u, const int8_t* differences,
             const int32_t* listed, int64_t panel, float* filter) {
  if (m == 2) {
    RestorePanel<2>(matrix, u, differences, listed, panel, filter);
  } else {
    RestorePanel<4>(matrix, u, differences, listed, panel, filter);
  }
}

template <int kM>
void FilterGradPanels(const FilterMatrix& matrix, const float* x, int64_t begin, int64_t end,
                      float* filter) {
  constexpr int kN = Points(kM);
  const FloatTag d;
  const int64_t lanes = Lanes();
  const int64_t last = std::min(end * kPanel, matrix.columns);
  for (int64_t n = begin * kPanel; n < last; n += kChunk, x += FilterColumns(kM, matrix.rows)) {
    const int64_t columns = std::min(kChunk, last - n);
    for (int64_t k = 0; k < matrix.rows; ++k) {
      HWY_ALIGN float taps[kTaps * kChunk];
      for (int64_t v = 0; v < columns; v += lanes) {
        const float* from = x + k / kChunk * FilterChunk(kM) + k % kChunk * kChunk + v;
        FloatVec half[kN][3];
        for (int j = 0; j < kN; ++j) {
          FloatVec u[kN];
          for (int i = 0; i < kN; ++i) u[i] = hn::LoadU(d, from + (i * kN + j) * kFilterPosition);
          Axis<kM>::FilterGrad(u, half[j]);
        }
        for (int i = 0; i < 3; ++i) {
          FloatVec u[kN], f[3];
          for (int j = 0; j < kN; ++j) u[j] = half[j][i];
          Axis<kM>::FilterGrad(u, f);
          for (int j = 0; j < 3; ++j) hn::StoreU(f[j], d, taps + (i * 3 + j) * kChunk + v);
        }
      }
      float* to = filter + k * matrix.row + n * matrix.column;
      for (int64_t v = 0; v < columns; ++v) {
        for (int64_t t = 0; t < kTaps; ++t) to[v * matrix.column + t] = taps[t * kChunk + v];
      }
    }
  }
}

void FilterGrads(int m, const FilterMatrix& matrix, const float* x, int64_t begin, int64_t end,
                 float* filter) {
  if (m == 2) {
    FilterGradPanels<2>(matrix, x, begin, end, filter);
  } else {
    FilterGradPanels<4>(matrix, x, begin, end, filter);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::winograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::winograd {
namespace {

HWY_EXPORT(Inputs);
HWY_EXPORT(OutputGrads);
HWY_EXPORT(Outputs);
HWY_EXPORT(Filters);
HWY_EXPORT(ExactFilters);
HWY_EXPORT(Restore);
HWY_EXPORT(FilterGrads);

}  // namespace

void TransformInputs(int m, const Tiling& from, const TileRange& tiles, const float* images,
                     const float* zeros, float* out) {
  HWY_DYNAMIC_DISPATCH(Inputs)(m, from, tiles, images, zeros, out);
}
void TransformOutputGrads(int m, const Tiling& from, const TileRange& tiles, const float* images,
                          const float* zeros, int64_t channels, float* out) {
  HWY_DYNAMIC_DISPATCH(OutputGrads)(m, from, tiles, images, zeros, channels, out);
}
void TransformOutputs(int m, const Tiling& to, const TileRange& tiles, const float* x,
                      int64_t channel, int64_t channels, const Epilogue& epilogue, float* images) {
  HWY_DYNAMIC_DISPATCH(Outputs)(m, to, tiles, x, channel, channels, epilogue, images);
}
void TransformFilter(int m, const FilterMatrix& matrix, const float* filter, int64_t begin,
                     int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(Filters)(m, matrix, filter, begin, end, out);
}
int64_t TransformFilterExactly(int m, const FilterMatrix& matrix, const float* filter,
                               int64_t panel, float* out, int8_t* differences, int32_t* listed) {
  return HWY_DYNAMIC_DISPATCH(ExactFilters)(m, matrix, filter, panel, out, differences, listed);
}
void RestoreFilter(int m, const FilterMatrix& matrix, const float* transformed,
                   const int8_t* differences, const int32_t* listed, int64_t panel, float* filter) {
  HWY_DYNAMIC_DISPATCH(Restore)(m, matrix, transformed, differences, listed, panel, filter);
}
void TransformFilterGrad(int m, const FilterMatrix& matrix, const float* x, int64_t begin,
                         int64_t end, float* filter) {
  HWY_DYNAMIC_DISPATCH(FilterGrads)(m, matrix, x, begin, end, filter);
}
}  // namespace coracle::winograd
#endif
