#include <coracle/framework/base/error.h>
#include <coracle/operators/quantize/depthwise_simd.h>
#include <coracle/operators/quantize/quantized.h>

#include <algorithm>
#include <cstring>

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

int64_t DepthwiseByteRows::BufferSize() const {
  const int64_t columns = (kGroupsAtATime - 1) * 4 * stride + (kernel_columns - 1) * dilation + 1;
  return columns * quads * kBytesOfQuad;
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

CORACLE_VNNI_INLINE __mmask64 MaskOf(int64_t bytes) {
  return bytes == 64 ? ~__mmask64{0} : (__mmask64{1} << bytes) - 1;
}

// The input pixels of a group of outputs, at `column` and then every stride columns.
template <int kGroup>
struct PixelLoader {
  int64_t step, stride, channels, image_columns, block_channels;
  __mmask64 mask;  // the bytes of one pixel
  __m512i flip, padding;
  bool adjacent;  // the pixels of a group are one run of 64 bytes

  CORACLE_VNNI_INLINE explicit PixelLoader(const DepthwiseBlock& block,
                                           const DepthwiseByteRows& rows)
      : step(rows.stride * rows.image_channels),
        stride(rows.stride),
        channels(rows.image_channels),
        image_columns(rows.columns),
        block_channels(block.channels),
        mask(MaskOf(block.channels)),
        flip(_mm512_set1_epi8(static_cast<char>(rows.flip))),
        padding(_mm512_set1_epi8(static_cast<char>(rows.padding))),
        adjacent(stride == 1 && channels * kGroup == 64) {}

  // Whether all pixels of the group are in the image.
  CORACLE_VNNI_INLINE bool IsInside(int64_t column) const {
    return column >= 0 && column + (kGroup - 1) * stride < image_columns;
  }
  // REQUIRES: IsInside(column).
  CORACLE_VNNI_INLINE __m512i Inside(const uint8_t* line, int64_t column) const {
    const uint8_t* p = line + column * channels;
    __m512i v;
    if constexpr (kGroup == 1) {
      v = _mm512_maskz_loadu_epi8(mask, p);
    } else if (adjacent) {
      v = _mm512_loadu_si512(p);
    } else if constexpr (kGroup == 2) {
      const auto half = static_cast<__mmask32>(mask);
      v = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi8(half, p)),
                             _mm256_maskz_loadu_epi8(half, p + step), 1);
    } else {
      const auto part = static_cast<__mmask16>(mask);
      v = _mm512_castsi128_si512(_mm_maskz_loadu_epi8(part, p));
      v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi8(part, p + step), 1);
      v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi8(part, p + 2 * step), 2);
      v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi8(part, p + 3 * step), 3);
    }
    return _mm512_xor_si512(v, flip);
  }
  CORACLE_VNNI_INLINE __m512i Any(const uint8_t* line, int64_t column) const {
    alignas(64) uint8_t bytes[64] = {};
    __mmask64 inside = 0;
    for (int64_t i = 0; i < kGroup; ++i) {
      const int64_t at = column + i * stride;
      if (at < 0 || at >= image_columns) continue;
      std::memcpy(bytes + i * (64 / kGroup), line + at * channels,
                  static_cast<size_t>(block_channels));
      inside |= MaskOf(64 / kGroup) << (i * (64 / kGroup));
    }
    const __m512i flipped = _mm512_xor_si512(_mm512_load_si512(bytes), flip);
    return _mm512_mask_blend_epi8(inside, padding, flipped);
  }
};

// Writes the bytes a0 b0 c0 d0 a1 b1 c1 d1 ... of four lines to the buffer.
CORACLE_VNNI_INLINE void Interleave(__m512i a, __m512i b, __m512i c, __m512i d, uint8_t* to) {
  const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
  _mm512_storeu_si512(to, _mm512_unpacklo_epi16(ab_low, cd_low));
  _mm512_storeu_si512(to + 64, _mm512_unpackhi_epi16(ab_low, cd_low));
  _mm512_storeu_si512(to + 128, _mm512_unpacklo_epi16(ab_high, cd_high));
  _mm512_storeu_si512(to + 192, _mm512_unpackhi_epi16(ab_high, cd_high));
}

// Fills the buffer with the pixels of `count` groups that begin at input columns `first`, ...
template <int kGroup>
CORACLE_VNNI void FillBuffer(const DepthwiseBlock block, const DepthwiseByteRows rows,
                             int64_t first, int64_t count) {
  const PixelLoader<kGroup> load(block, rows);
  for (int64_t q = 0; q < rows.quads; ++q) {
    const uint8_t* const* lines = rows.lines + q * kTapsOfQuad;
    const uint8_t *l0 = lines[0], *l1 = lines[1], *l2 = lines[2], *l3 = lines[3];
    uint8_t* to = rows.buffer + q * kBytesOfQuad;
    for (int64_t k = first; k < first + count; ++k, to += rows.quads * kBytesOfQuad) {
      if (load.IsInside(k))
        Interleave(load.Inside(l0, k), load.Inside(l1, k), load.Inside(l2, k), load.Inside(l3, k),
                   to);
      else
        Interleave(load.Any(l0, k), load.Any(l1, k), load.Any(l2, k), load.Any(l3, k), to);
    }
  }
}

using Curve = DepthwiseFinish::Curve;

// What follows the sums, in registers. kPlain: no activation, no zero point, and the limits are
// those of the type.
enum class After { kPlain, kLimits, kLeaky, kHardSwish };
template <After kAfter>
struct Finisher {
  const float *scale, *bias;
  __m512i zero, least, most;
  __m512 slope, last;
  bool is_signed;

  CORACLE_VNNI_INLINE Finisher(const DepthwiseBlock& block, const DepthwiseFinish& f)
      : scale(block.scale),
        bias(block.bias),
        zero(_mm512_set1_epi16(f.zero)),
        least(_mm512_set1_epi16(f.least)),
        most(_mm512_set1_epi16(f.most)),
        slope(_mm512_set1_ps(f.slope)),
        last(_mm512_set1_ps(f.last)),
        is_signed(f.is_signed) {}

  // The rounded numbers of 16 sums.
  CORACLE_VNNI_INLINE __m512i Rounded(__m512i sum, int v) const {
    __m512 x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(scale + v * 16),
                               _mm512_loadu_ps(bias + v * 16));
    if constexpr (kAfter == After::kLeaky) {
      const __mmask16 below = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
      x = _mm512_mask_mul_ps(x, below, x, slope);
    } else if constexpr (kAfter == After::kHardSwish) {
      __m512 gate = _mm512_add_ps(x, _mm512_set1_ps(3.0f));
      gate = _mm512_min_ps(_mm512_max_ps(gate, _mm512_setzero_ps()), _mm512_set1_ps(6.0f));
      x = _mm512_mul_ps(_mm512_mul_ps(x, gate), last);
    }
    return _mm512_cvtps_epi32(x);
  }
  // 32 outputs in 16 bits.
  CORACLE_VNNI_INLINE __m512i Half(__m512i low, __m512i high, int v) const {
    const __m512i packed = _mm512_packs_epi32(Rounded(low, v), Rounded(high, v + 1));
    if constexpr (kAfter == After::kPlain) return packed;
    return _mm512_min_epi16(_mm512_max_epi16(_mm512_adds_epi16(packed, zero), least), most);
  }
  // The outputs of four vectors of sums, in the order of the images.
  CORACLE_VNNI_INLINE __m512i Bytes(const __m512i* sums) const {
    const __m512i low = Half(sums[0], sums[1], 0), high = Half(sums[2], sums[3], 2);
    return is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
  }
};

// Stores the channels of at most `pixels` pixels.
template <int kGroup>
CORACLE_VNNI_INLINE void StoreGroup(__m512i bytes, int64_t channels, int64_t step, int64_t pixels,
                                    uint8_t* out) {
  const __mmask64 some = MaskOf(channels);
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

// GCC 12 copies the sum before each _mm512_dpbusd_epi32.
CORACLE_VNNI_INLINE void AddProducts(__m512i bytes, __m512i weights, __m512i* sum) {
  asm("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(bytes), "v"(weights));
}

// kCount groups of pixels from `pixel` of output row `r` on, whose first column is at `from`.
template <int kGroup, int kCount, After kAfter>
CORACLE_VNNI_INLINE void SumGroups(const DepthwiseBlock& block, const DepthwiseByteRows& rows,
                                   const Finisher<kAfter>& finish, int64_t r, int64_t pixel,
                                   const uint8_t* from) {
  const int64_t column = rows.quads * kBytesOfQuad;
  const int64_t next = kGroup * rows.stride * column;
  __m512i sums[kCount][4];
  CORACLE_UNROLL
  for (int t = 0; t < kCount; ++t) {
    CORACLE_UNROLL
    for (int v = 0; v < 4; ++v) sums[t][v] = _mm512_loadu_si512(block.add + v * 16);
  }
  const int8_t* weights = block.weights + r * rows.kernel_columns * column;
  for (int64_t j = 0; j < rows.kernel_columns; ++j) {
    const uint8_t* in = from + j * rows.dilation * column;
    for (int64_t q = 0; q < rows.quads; ++q, in += kBytesOfQuad, weights += kBytesOfQuad) {
      CORACLE_UNROLL
      for (int v = 0; v < 4; ++v) {
        const __m512i w = _mm512_loadu_si512(weights + v * 64);
        CORACLE_UNROLL
        for (int t = 0; t < kCount; ++t)
          AddProducts(_mm512_loadu_si512(in + t * next + v * 64), w, &sums[t][v]);
      }
    }
  }
  CORACLE_UNROLL
  for (int t = 0; t < kCount; ++t) {
    const int64_t at = pixel + t * kGroup;
    StoreGroup<kGroup>(finish.Bytes(sums[t]), block.channels, rows.image_channels, rows.pixels - at,
                       rows.out + (r * rows.pixels + at) * rows.image_channels);
  }
}

// By value, because bytes that are stored could change what a reference refers to.
template <int kGroup, After kAfter>
CORACLE_VNNI void Rows(const DepthwiseBlock block, const DepthwiseByteRows rows,
                       const DepthwiseFinish& given) {
  const Finisher<kAfter> finish(block, given);
  const int64_t groups = (rows.pixels + kGroup - 1) / kGroup;
  const int64_t next = kGroup * rows.stride * rows.quads * kBytesOfQuad;
  for (int64_t g = 0; g < groups; g += kGroupsAtATime) {
    const int64_t count = std::min(kGroupsAtATime, groups - g);
    const int64_t columns =
        (count - 1) * kGroup * rows.stride + (rows.kernel_columns - 1) * rows.dilation + 1;
    FillBuffer<kGroup>(block, rows, g * kGroup * rows.stride - rows.before, columns);
    for (int64_t r = 0; r < rows.rows; ++r) {
      const uint8_t* from = rows.buffer;
      int64_t i = 0;
      for (; i + 4 <= count; i += 4, from += 4 * next)
        SumGroups<kGroup, 4>(block, rows, finish, r, (g + i) * kGroup, from);
      for (; i < count; ++i, from += next)
        SumGroups<kGroup, 1>(block, rows, finish, r, (g + i) * kGroup, from);
    }
  }
}

template <After kAfter>
void RowsOfGroups(const DepthwiseBlock& block, const DepthwiseByteRows& rows,
                  const DepthwiseFinish& finish) {
  if (block.group == 1)
    Rows<1, kAfter>(block, rows, finish);
  else if (block.group == 2)
    Rows<2, kAfter>(block, rows, finish);
  else
    Rows<4, kAfter>(block, rows, finish);
}

bool IsPlain(const DepthwiseFinish& f) {
  return f.zero == 0 && f.least == (f.is_signed ? -128 : 0) && f.most == f.least + 255;
}

}  // namespace

bool HasDepthwiseVnni() {
  static const bool has = __builtin_cpu_supports("avx512vnni") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return has && ExactIntegerProducts();
}

void DepthwiseVnni(const DepthwiseBlock& block, const DepthwiseByteRows& rows,
                   const DepthwiseFinish& finish) {
  switch (finish.curve) {
    case Curve::kNone:
      return IsPlain(finish) ? RowsOfGroups<After::kPlain>(block, rows, finish)
                             : RowsOfGroups<After::kLimits>(block, rows, finish);
    case Curve::kLeaky:
      return RowsOfGroups<After::kLeaky>(block, rows, finish);
    case Curve::kHardSwish:
      return RowsOfGroups<After::kHardSwish>(block, rows, finish);
  }
}

#else

bool HasDepthwiseVnni() { return false; }

void DepthwiseVnni(const DepthwiseBlock&, const DepthwiseByteRows&, const DepthwiseFinish&) {
  throw InternalError("no instructions for a depthwise convolution");
}

#endif

}  // namespace coracle::inline internal
