#pragma once
// Ops as a hostile program may hold them: whatever an op is given, it works or throws an Error.

#include <coracle/framework/op/kernel/interpreter.h>

#include <random>
#include <string>

namespace coracle {

// Runs `op` on `env` with both kinds of kernels, unless the verifier refuses it or its outputs
// would be large. With CORACLE_HOSTILE_PRINT set in the environment it first prints the op, so that
// the last line before a crash names it. A test fails if the op ends with anything other than a
// user's Error.
void RunHostile(const OpDesc& op, const VarValues& env, const OpRegistry& ops);

// Variants of an op that works: other shapes, dtypes, attrs and slots in one or a few places. Only
// the first ops of each type are taken, and small ones.
void RunHostileVariants(const OpDesc& op, const VarValues& env, const OpRegistry& ops);

// A small tensor: values in [-1, 3].
Tensor HostileTensor(std::mt19937& random, DType dtype, const Shape& shape);
Shape HostileShape(std::mt19937& random);
DType HostileDType(std::mt19937& random);
// A value of the attr, in its range more often than not.
Attribute HostileAttr(std::mt19937& random, const AttrDef& def);

}  // namespace coracle
