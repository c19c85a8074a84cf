#pragma once
// Selects the kernel of an op by element type and mode; 16-bit floats are computed in float32 if no
// loop or no fast kernel supports them.

#include <coracle/framework/op/op_def.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// The op's kernel for a plan. Throws kUnimplemented if there is none. Returns an empty kernel if an
// op with BlockRuns::kOnce gains nothing over the ops of its block, which then run one by one in
// the memory of the enclosing block.
Kernel PrepareKernel(const PrepareContext& context, KernelMode mode);

// The slot whose first variable's element type selects the kernel; "" if there is none.
struct KernelOperand {
  std::string_view slot;
  bool output = false;
};
KernelOperand FindKernelOperand(const OpSpec& spec, const OpDesc& op);

// The element type of that operand. Throws InternalError if no slot determines it.
DType KernelDType(const PrepareContext& context);
[[noreturn]] void ThrowNoKernel(const PrepareContext& context);

std::string NamesOf(const std::vector<DType>& dtypes);  // "float32, float64"

}  // namespace coracle::inline internal
