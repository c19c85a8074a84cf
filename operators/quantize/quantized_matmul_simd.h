#pragma once
// Loops of quantized_matmul over bytes and sums, in the widest SIMD of the machine.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>

namespace coracle::inline internal {

// Elements that the arrays of SumsRow must have beyond the last one.
constexpr int64_t kSumsPadding = 16;

// to[i] = from[i] with the highest bit flipped: int8 x as the uint8 x + 128, or uint8 x as the int8
// x - 128. `to` may be `from`.
void FlipBytes(const uint8_t* from, uint8_t* to, int64_t n);
// With `flip`, the functions below read bytes whose highest bit they flip.
//
// to[i] = from[i] as uint8 or int8.
void BytesToFloats(const uint8_t* from, float* to, int64_t n);
void SignedBytesToFloats(const uint8_t* from, float* to, int64_t n, bool flip);
// The sum of n uint8.
int64_t SumBytes(const uint8_t* x, int64_t n, bool flip);
// sums[j] = the sum of column j of a matrix [rows, n] of int8.
void SumColumns(const uint8_t* x, int64_t rows, int64_t n, bool flip, int32_t* sums);
// sums[i] += x[i], integers below 2^24 in magnitude.
void AddIntegers(const float* x, int64_t n, int32_t* sums);

// A row of sums S of products, and how they become elements of Out:
//   t = S + offset - x_zero column_sums - row_sum column_zeros   (the last two only if `corrected`)
//   v = clamp(t factor scale + bias + residual, low, high)
//   Out = round(v) + zero for 8 bits, limited to the range; v as float32; t as int32.
// The residual r adds residual_factor (r - residual_zero).
struct SumsRow {
  const int32_t* sums = nullptr;
  const int32_t* offset = nullptr;
  bool corrected = false;
  const int32_t *column_sums = nullptr, *column_zeros = nullptr;
  int32_t x_zero = 0, row_sum = 0;
  const float *factor = nullptr, *bias = nullptr;
  float scale = 1, low = 0, high = 0;
  const void* residual = nullptr;  // nullptr: none
  DType residual_dtype = DType::kFloat32;
  float residual_factor = 0;
  int32_t residual_zero = 0;  // of 8 bits
  int32_t zero = 0;
  void* out = nullptr;
  DType out_dtype = DType::kFloat32;
};
// Elements [0, n) of the row. Reads up to kSumsPadding elements more of sums, offset, column_sums,
// column_zeros, factor and bias.
void FinishSums(const SumsRow& row, int64_t n);

// out[i] = round(clamp(x[i] factor, low, high)) + zero, limited to the range of the 8-bit dtype.
struct ByteRounding {
  float factor = 1;
  int32_t zero = 0;
  DType dtype = DType::kUInt8;
};
void RoundToBytes(const float* x, int64_t n, const ByteRounding& rounding, void* out);

}  // namespace coracle::inline internal
