#pragma once
// Loops over the sums of a quantised convolution, in the widest SIMD of the machine.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>

namespace coracle::inline internal {

// What turns the sums of one pixel into real numbers, for each channel c:
// scale[c] (sum[c] + add[c] - ones_times[c] sum[channels]) + bias[c].
struct ChannelTerms {
  int64_t channels = 0;
  const int32_t* add = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;          // nullptr: 0
  const int32_t* ones_times = nullptr;  // nullptr: 0; else a pixel has one more sum
};

// Pixels with `channels` sums each, or one more; `real` may be the same memory as `sums`.
void SumsToReals(const ChannelTerms& terms, const int32_t* sums, int64_t pixels, float* real);
// The same without scale and bias.
void CorrectSums(const ChannelTerms& terms, const int32_t* sums, int64_t pixels, int32_t* out);

// x[i] += scale (q[i] - zero), of int8 or uint8.
void AddIntegers(const void* q, DType dtype, float scale, int32_t zero, int64_t n, float* x);

// to[i] = from[i] xor 0x80: int8 from uint8 with the zero point 128, and back.
void FlipSigns(const void* from, int64_t n, void* to);

}  // namespace coracle::inline internal
