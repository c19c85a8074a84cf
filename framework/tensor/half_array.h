#pragma once
// Arrays of 16-bit floats to and from float: the conversions of dtype.h, in the widest SIMD of the
// machine and on several threads.

#include <coracle/framework/tensor/dtype.h>

#include <cstdint>

namespace coracle {

inline bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// The arrays do not overlap; n may be 0.
void ConvertArray(const float16* from, float* to, int64_t n);
void ConvertArray(const bfloat16* from, float* to, int64_t n);
void ConvertArray(const float* from, float16* to, int64_t n);
void ConvertArray(const float* from, bfloat16* to, int64_t n);

// The same with one side's dtype known at run time. REQUIRES: IsHalf(half).
void HalfToFloat(DType half, const void* from, float* to, int64_t n);
void FloatToHalf(const float* from, DType half, void* to, int64_t n);

}  // namespace coracle
