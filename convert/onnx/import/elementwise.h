#pragma once
// Functions of elementwise.cc for other families.

#include "node_context.h"

namespace coracle::onnx {

// The op that the row maps to, of input 0.
void ImportUnary(NodeContext& node);

// The nearest integers, with halves rounded to even: IEEE 754's default, which Paddle's op `round`
// does not follow.
Variable RoundedToEven(NodeContext& node, const Variable& x);

}  // namespace coracle::onnx
