#pragma once
// Rounding as IEEE 754 has it by default, which Paddle's op `round` does not do.

#include "node_context.h"

namespace coracle::onnx {

// The nearest integers, of two equally near ones the even one.
Variable RoundedToEven(NodeContext& node, const Variable& x);

}  // namespace coracle::onnx
