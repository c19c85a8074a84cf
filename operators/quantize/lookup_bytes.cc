#include <coracle/operators/quantize/lookup_bytes.h>

#include <cstddef>
#include <cstring>

// Highway has no lookups in 256 bytes. AVX-512 VBMI has them for 128 bytes.
#if defined(__x86_64__) && defined(__GNUC__)
#define CORACLE_BYTE_TABLES
#include <immintrin.h>
#endif

namespace coracle::inline internal {
namespace {

void LookupEach(const uint8_t* x, const ByteTable& table, uint8_t* out, int64_t n) {
  constexpr int64_t kWord = sizeof(uint64_t);
  int64_t i = 0;
  for (; i + kWord <= n; i += kWord) {
    uint64_t from = 0, to = 0;
    std::memcpy(&from, x + i, sizeof from);
    for (int b = 0; b < 64; b += 8) to |= static_cast<uint64_t>(table[from >> b & 255]) << b;
    std::memcpy(out + i, &to, sizeof to);
  }
  for (; i < n; ++i) out[i] = table[x[i]];
}

#ifdef CORACLE_BYTE_TABLES
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) void LookupVectors(const uint8_t* x,
                                                                          const ByteTable& table,
                                                                          uint8_t* out, int64_t n) {
  constexpr int64_t kLanes = 64;
  __m512i part[4];
  for (int i = 0; i < 4; ++i) part[i] = _mm512_loadu_si512(table.data() + kLanes * i);
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask64 lanes = n - i >= kLanes ? ~__mmask64{0} : (__mmask64{1} << (n - i)) - 1;
    const __m512i index = _mm512_maskz_loadu_epi8(lanes, x + i);
    const __m512i low = _mm512_permutex2var_epi8(part[0], index, part[1]);
    const __m512i high = _mm512_permutex2var_epi8(part[2], index, part[3]);
    const __m512i entry = _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
    _mm512_mask_storeu_epi8(out + i, lanes, entry);
  }
}
#endif

}  // namespace

ByteTable TableInByteOrder(const uint8_t* entries, bool is_signed) {
  ByteTable table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = entries[is_signed ? i ^ 128 : i];
  return table;
}

void LookupBytes(const uint8_t* x, const ByteTable& table, uint8_t* out, int64_t n) {
#ifdef CORACLE_BYTE_TABLES
  static const bool vectors = __builtin_cpu_supports("avx512vbmi") != 0;
  if (vectors) return LookupVectors(x, table, out, n);
#endif
  LookupEach(x, table, out, n);
}

}  // namespace coracle::inline internal
