#pragma once
// Programs in double and values for their inputs. CheckGradient runs such a program at near points
// and compares its gradients with the differences.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>

namespace coracle::inline internal {

// float64 for floating-point types, complex128 for complex ones, else the type itself.
DType Widened(DType dtype);

// Adds a cast to double after each op that always gives float32, such as an op that counts words,
// so that the next op reads double. REQUIRES: the variables have widened types.
void CastNarrowResults(ProgramDesc& program, const OpRegistry& ops);

// Normal numbers, times `scale`, of a type in double.
Tensor DrawNormal(const Shape& shape, uint64_t seed, const std::string& name, double scale = 1,
                  DType dtype = DType::kFloat64);

// A value for a variable that has none. Unknown dims become `batch_size`. A variable with LoD gets
// that many sequences of two and three rows in turn, at every level: all such variables have the
// same ones. Integers are 0 or 1, and texts "0" or "1", which most ops on texts can read.
Tensor DrawInput(const VarDesc& var, uint64_t seed, int64_t batch_size);

}  // namespace coracle::inline internal
