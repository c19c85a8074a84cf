#pragma once
// Which kernel an op gets: by element type and mode; 16-bit floats are computed in float32 where no
// loop or no fast kernel takes them.

#include <coracle/framework/op/op_spec.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// The op's kernel for a plan. Throws kUnimplemented when there is none. Empty where an op with
// BlockRuns::kOnce has nothing to gain over its block's ops: these are run one by one instead, in
// the memory of the block around.
Kernel PrepareKernel(const PrepareContext& context, KernelMode mode);

// The slot whose first variable's element type chooses the kernel; "" when there is none.
struct KernelOperand {
  std::string_view slot;
  bool output = false;
};
KernelOperand FindKernelOperand(const OpSpec& spec, const OpDesc& op);

// That element type. Throws InternalError when no slot tells it.
DType KernelDType(const PrepareContext& context);
[[noreturn]] void ThrowNoKernel(const PrepareContext& context);

std::string NamesOf(const std::vector<DType>& dtypes);  // "float32, float64"

}  // namespace coracle
