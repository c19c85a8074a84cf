#pragma once
// Which ops draw random numbers.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/op/op_registry.h>

namespace coracle::inline internal {

// Whether the op draws random numbers when it runs; with is_test (as in dropout) it does not. False
// for an op of an unknown type.
bool DrawsNumbers(const OpDesc& op, const OpRegistry& ops);

}  // namespace coracle::inline internal
