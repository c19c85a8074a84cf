#include <coracle/framework/base/error.h>
#include <coracle/operators/quantize/depthwise_simd.h>
#include <coracle/operators/quantize/quantized.h>

#include <algorithm>

#ifdef __x86_64__
// GCC 12 takes the undefined registers in its own header for mistakes.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

namespace coracle::inline internal {
namespace {

// Pixel groups of a row that are computed from one filling of the buffer.
constexpr int64_t kGroupsAtATime = 32;

}  // namespace

int64_t DepthwiseRow::BufferSize() const {
  const int64_t columns = (kGroupsAtATime - 1) * 4 * stride + (kernel_columns - 1) * dilation + 1;
  return columns * quads() * kBytesOfQuad;
}

#ifdef __x86_64__

namespace {

#define CORACLE_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
// Arrays of vectors stay in registers only if the loops over them are unrolled.
#ifdef __clang__
#define CORACLE_UNROLL _Pragma("unroll")
#else
#define CORACLE_UNROLL _Pragma("GCC unroll 4")
#endif
#define CORACLE_VNNI_INLINE CORACLE_VNNI inline __attribute__((always_inline))

// The pixels of a group, `step` bytes apart.
template <int kGroup>
CORACLE_VNNI_INLINE __m512i LoadGroup(const uint8_t* p, int64_t step) {
  const auto* at = reinterpret_cast<const __m128i*>(p);
  if constexpr (kGroup == 1) {
    return _mm512_loadu_si512(p);
  } else if constexpr (kGroup == 2) {
    const __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i*)p));
    return _mm512_inserti64x4(low, _mm256_loadu_si256((const __m256i*)(p + step)), 1);
  } else {
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128(at));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(p + step)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(p + 2 * step)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(p + 3 * step)), 3);
  }
}

// Writes the bytes a0 b0 c0 d0 a1 b1 c1 d1 ... of four lines to the buffer.
CORACLE_VNNI_INLINE void Interleave(__m512i a, __m512i b, __m512i c, __m512i d, uint8_t* to) {
  const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
  _mm512_storeu_si512(to, _mm512_unpacklo_epi16(ab_low, cd_low));
  _mm512_storeu_si512(to + 64, _mm512_unpackhi_epi16(ab_low, cd_low));
  _mm512_storeu_si512(to + 128, _mm512_unpacklo_epi16(ab_high, cd_high));
  _mm512_storeu_si512(to + 192, _mm512_unpackhi_epi16(ab_high, cd_high));
}

// Fills the buffer with input columns [first, first + columns).
template <int kGroup>
CORACLE_VNNI void FillBuffer(const DepthwiseRow& row, int64_t first, int64_t columns,
                             int64_t step) {
  const int64_t quads = row.quads(), c = row.image_channels;
  for (int64_t q = 0; q < quads; ++q) {
    const uint8_t* const* lines = row.lines + q * kTapsOfQuad;
    const int64_t rows = std::min(kTapsOfQuad, row.kernel_rows - q * kTapsOfQuad);
    // Weights of missing rows are 0, so that any line may take their places.
    const uint8_t* l0 = lines[0] + first * c;
    const uint8_t* l1 = lines[rows > 1 ? 1 : 0] + first * c;
    const uint8_t* l2 = lines[rows > 2 ? 2 : 0] + first * c;
    const uint8_t* l3 = lines[rows > 3 ? 3 : 0] + first * c;
    uint8_t* to = row.buffer + q * kBytesOfQuad;
    for (int64_t k = 0; k < columns; ++k, to += quads * kBytesOfQuad) {
      const __m512i a = LoadGroup<kGroup>(l0 + k * c, step);
      const __m512i b = rows > 1 ? LoadGroup<kGroup>(l1 + k * c, step) : a;
      const __m512i d = rows > 2 ? LoadGroup<kGroup>(l2 + k * c, step) : a;
      Interleave(a, b, d, rows > 3 ? LoadGroup<kGroup>(l3 + k * c, step) : a, to);
    }
  }
}

using Curve = DepthwiseFinish::Curve;

// The rounded numbers of 16 sums.
template <Curve kCurve>
CORACLE_VNNI_INLINE __m512i Rounded(__m512i sum, int v, const DepthwiseBlock& block,
                                    const DepthwiseFinish& finish) {
  __m512 x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(block.scale + v * 16),
                             _mm512_loadu_ps(block.bias + v * 16));
  if constexpr (kCurve == Curve::kLeaky) {
    const __mmask16 below = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    x = _mm512_mask_mul_ps(x, below, x, _mm512_set1_ps(finish.slope));
  } else if constexpr (kCurve == Curve::kHardSwish) {
    __m512 gate = _mm512_add_ps(x, _mm512_set1_ps(3.0f));
    gate = _mm512_min_ps(_mm512_max_ps(gate, _mm512_setzero_ps()), _mm512_set1_ps(6.0f));
    x = _mm512_mul_ps(_mm512_mul_ps(x, gate), _mm512_set1_ps(finish.last));
  }
  return _mm512_cvtps_epi32(x);
}

// The bytes of four vectors of sums, in the order of the images.
template <Curve kCurve>
CORACLE_VNNI_INLINE __m512i Bytes(const __m512i* sums, const DepthwiseBlock& block,
                                  const DepthwiseFinish& finish) {
  const __m512i zero = _mm512_set1_epi16(finish.zero), least = _mm512_set1_epi16(finish.least),
                most = _mm512_set1_epi16(finish.most);
  __m512i half[2];
  CORACLE_UNROLL
  for (int h = 0; h < 2; ++h) {
    const __m512i low = Rounded<kCurve>(sums[2 * h], 2 * h, block, finish);
    const __m512i high = Rounded<kCurve>(sums[2 * h + 1], 2 * h + 1, block, finish);
    const __m512i sum = _mm512_adds_epi16(_mm512_packs_epi32(low, high), zero);
    half[h] = _mm512_min_epi16(_mm512_max_epi16(sum, least), most);
  }
  return finish.is_signed ? _mm512_packs_epi16(half[0], half[1])
                          : _mm512_packus_epi16(half[0], half[1]);
}

// Stores the channels of at most `pixels` pixels.
template <int kGroup>
CORACLE_VNNI_INLINE void StoreGroup(__m512i bytes, int64_t channels, int64_t step, int64_t pixels,
                                    uint8_t* out) {
  const __mmask64 some = channels == 64 ? ~__mmask64{0} : (__mmask64{1} << channels) - 1;
  if constexpr (kGroup == 1) {
    _mm512_mask_storeu_epi8(out, some, bytes);
  } else if constexpr (kGroup == 2) {
    const auto mask = static_cast<__mmask32>(some);
    _mm256_mask_storeu_epi8(out, mask, _mm512_castsi512_si256(bytes));
    if (pixels > 1) _mm256_mask_storeu_epi8(out + step, mask, _mm512_extracti64x4_epi64(bytes, 1));
  } else {
    const auto mask = static_cast<__mmask16>(some);
    _mm_mask_storeu_epi8(out, mask, _mm512_castsi512_si128(bytes));
    if (pixels > 1) _mm_mask_storeu_epi8(out + step, mask, _mm512_extracti32x4_epi32(bytes, 1));
    if (pixels > 2) _mm_mask_storeu_epi8(out + 2 * step, mask, _mm512_extracti32x4_epi32(bytes, 2));
    if (pixels > 3) _mm_mask_storeu_epi8(out + 3 * step, mask, _mm512_extracti32x4_epi32(bytes, 3));
  }
}

// kCount groups of pixels from `pixel` on; the buffer begins with the column that `columns` names.
template <int kGroup, int kCount, Curve kCurve>
CORACLE_VNNI_INLINE void SumGroups(const DepthwiseBlock& block, const DepthwiseRow& row,
                                   const DepthwiseFinish& finish, int64_t pixel,
                                   const uint8_t* from) {
  const int64_t quads = row.quads(), column = quads * kBytesOfQuad;
  const int64_t next = kGroup * row.stride * column;
  __m512i sums[kCount][4];
  CORACLE_UNROLL
  for (int t = 0; t < kCount; ++t) {
    CORACLE_UNROLL
    for (int v = 0; v < 4; ++v) sums[t][v] = _mm512_loadu_si512(block.add + v * 16);
  }
  const int8_t* weights = block.weights;
  for (int64_t j = 0; j < row.kernel_columns; ++j) {
    const uint8_t* in = from + j * row.dilation * column;
    for (int64_t q = 0; q < quads; ++q, in += kBytesOfQuad, weights += kBytesOfQuad) {
      CORACLE_UNROLL
      for (int v = 0; v < 4; ++v) {
        const __m512i w = _mm512_loadu_si512(weights + v * 64);
        CORACLE_UNROLL
        for (int t = 0; t < kCount; ++t) {
          sums[t][v] =
              _mm512_dpbusd_epi32(sums[t][v], _mm512_loadu_si512(in + t * next + v * 64), w);
        }
      }
    }
  }
  CORACLE_UNROLL
  for (int t = 0; t < kCount; ++t) {
    const int64_t at = pixel + t * kGroup;
    StoreGroup<kGroup>(Bytes<kCurve>(sums[t], block, finish), block.channels, row.image_channels,
                       row.pixels - at, row.out + at * row.image_channels);
  }
}

template <int kGroup, Curve kCurve>
CORACLE_VNNI void Row(const DepthwiseBlock& block, const DepthwiseRow& row,
                      const DepthwiseFinish& finish) {
  const int64_t groups = (row.pixels + kGroup - 1) / kGroup;
  const int64_t step = row.stride * row.image_channels;
  const int64_t next = kGroup * row.stride * row.quads() * kBytesOfQuad;
  for (int64_t g = 0; g < groups; g += kGroupsAtATime) {
    const int64_t count = std::min(kGroupsAtATime, groups - g);
    const int64_t columns =
        (count - 1) * kGroup * row.stride + (row.kernel_columns - 1) * row.dilation + 1;
    const int64_t first = g * kGroup * row.stride;
    if (step * kGroup == 64)  // the pixels of a group are adjacent
      FillBuffer<1>(row, first, columns, step);
    else
      FillBuffer<kGroup>(row, first, columns, step);
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
      SumGroups<kGroup, 4, kCurve>(block, row, finish, (g + i) * kGroup, row.buffer + i * next);
    for (; i < count; ++i)
      SumGroups<kGroup, 1, kCurve>(block, row, finish, (g + i) * kGroup, row.buffer + i * next);
  }
}

template <Curve kCurve>
void RowOfGroups(const DepthwiseBlock& block, const DepthwiseRow& row,
                 const DepthwiseFinish& finish) {
  if (block.group == 1)
    Row<1, kCurve>(block, row, finish);
  else if (block.group == 2)
    Row<2, kCurve>(block, row, finish);
  else
    Row<4, kCurve>(block, row, finish);
}

}  // namespace

bool HasDepthwiseVnni() {
  static const bool has = __builtin_cpu_supports("avx512vnni") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return has && ExactIntegerProducts();
}

void DepthwiseVnni(const DepthwiseBlock& block, const DepthwiseRow& row,
                   const DepthwiseFinish& finish) {
  switch (finish.curve) {
    case Curve::kNone:
      return RowOfGroups<Curve::kNone>(block, row, finish);
    case Curve::kLeaky:
      return RowOfGroups<Curve::kLeaky>(block, row, finish);
    case Curve::kHardSwish:
      return RowOfGroups<Curve::kHardSwish>(block, row, finish);
  }
}

#else

bool HasDepthwiseVnni() { return false; }

void DepthwiseVnni(const DepthwiseBlock&, const DepthwiseRow&, const DepthwiseFinish&) {
  throw InternalError("no instructions for a depthwise convolution");
}

#endif

}  // namespace coracle::inline internal
