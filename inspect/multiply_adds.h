#pragma once
// The amount of arithmetic of a program, computed from its types.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_shapes.h>

namespace coracle::inline internal {

// The multiply-adds of an op's matrix products, convolutions and recurrent nets
// (OpDef::MultiplyAdds), from the types of its variables; 0 for other ops. A gradient op needs as
// many as its forward op for each gradient that it computes.
double MultiplyAdds(const OpDesc& op);

}  // namespace coracle::inline internal
