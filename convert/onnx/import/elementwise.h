#pragma once
// What other families use of elementwise.cc.

#include "node_context.h"

namespace coracle::onnx {

// The op that the row maps to, of input 0.
void ImportUnary(NodeContext& node);

// The nearest integers, of two equally near ones the even one: IEEE 754's default, which Paddle's
// op `round` does not do.
Variable RoundedToEven(NodeContext& node, const Variable& x);

}  // namespace coracle::onnx
