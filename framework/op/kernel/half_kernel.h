#pragma once
// 16-bit floats in ops whose kernels support only float32: stored in 16 bits, computed in float32.

#include <coracle/framework/op/op_context.h>

#include <string_view>

namespace coracle::inline internal {

// The op's float32 kernel (fast or reference) between conversions. Before it, every float16 or
// bfloat16 input is copied to scratch memory as float32. After it, every such output is rounded
// from there to nearest even (beyond the largest number: to infinity). Variables of other dtypes
// are used in place.
Kernel PrepareInFloat(const PrepareContext& context, KernelMode mode);

// For kernels prepared by PrepareInFloat that convert a variable themselves, in pieces that stay in
// the cache: the variable as stored, in 16 bits. It is then not converted, unless the kernel also
// asks for it with Input or Output. Absent in other contexts, and for a variable with another dtype
// than float16 and bfloat16.
TensorArg HalfInput(const PrepareContext& context, std::string_view slot);
TensorArg HalfOutput(const PrepareContext& context, std::string_view slot);

}  // namespace coracle::inline internal
