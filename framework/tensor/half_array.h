#pragma once
// Converts arrays of 16-bit floats to and from float: the conversions of dtype.h, with the widest
// SIMD of the machine and several threads.

#include <coracle/framework/tensor/tensor.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace coracle::inline internal {

inline bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// Rounds to odd: a number between two neighbouring floats becomes the one whose last bit is 1.
// Rounding the result to a 16-bit float then gives the same as rounding the number directly (Boldo
// and Melquiond, "Emulation of FMA and correctly rounded sums", 2008), which is not true of the
// nearest float.
inline float RoundToOdd(double value) {
  const float near = static_cast<float>(value);
  if (static_cast<double>(near) == value || std::isnan(value)) return near;
  auto bits = std::bit_cast<uint32_t>(near);
  if (std::abs(static_cast<double>(near)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}
inline double RoundToOdd(int64_t value) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (value >= -kExact && value <= kExact) return static_cast<double>(value);
  return static_cast<double>((value >> 11) | int64_t{(value & 0x7ff) != 0}) * 2048.0;
}

// Converts a real number to the nearest 16-bit float, ties to even.
template <class Half, class From>
Half ToHalf(From value) {
  if constexpr (std::is_same_v<From, double>)
    return Half(RoundToOdd(value));
  else if constexpr (std::is_same_v<From, int64_t> || std::is_same_v<From, int32_t>)
    return Half(RoundToOdd(RoundToOdd(int64_t{value})));
  else
    return Half(static_cast<float>(value));
}

// The arrays must not overlap; n may be 0.
void ConvertArray(const float16* from, float* to, int64_t n);
void ConvertArray(const bfloat16* from, float* to, int64_t n);
void ConvertArray(const float* from, float16* to, int64_t n);
void ConvertArray(const float* from, bfloat16* to, int64_t n);

// These take the 16-bit dtype at run time. REQUIRES: IsHalf(half).
void HalfToFloat(DType half, const void* from, float* to, int64_t n);
void FloatToHalf(const float* from, DType half, void* to, int64_t n);

}  // namespace coracle::inline internal
