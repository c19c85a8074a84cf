#pragma once
// 16-bit floats in ops whose kernels know float32 only: stored as they are, computed in float32.

#include <coracle/framework/op/prepare_context.h>

#include <string_view>

namespace coracle {

// The op's kernel for float32 (fast or reference), between conversions: every float16 or bfloat16
// input is first copied as float32 to scratch memory, and every such output rounded to nearest even
// from there (beyond the largest number: to infinity) after it. Variables of other dtypes stay
// where they are.
Kernel PrepareInFloat(const PrepareContext& context, KernelMode mode);

// While a kernel is prepared by PrepareInFloat: a variable as it is stored, in 16 bits, for a
// kernel that converts it itself, in pieces that stay in the cache. It is not converted then,
// unless the kernel asks for it with Input or Output too. Absent in other contexts, and for a
// variable that has another dtype than float16 and bfloat16.
TensorArg HalfInput(const PrepareContext& context, std::string_view slot);
TensorArg HalfOutput(const PrepareContext& context, std::string_view slot);

}  // namespace coracle
