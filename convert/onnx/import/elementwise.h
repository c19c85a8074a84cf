#pragma once
// Functions of elementwise.cc that other families use.

#include <coracle/convert/onnx/import/node_context.h>

namespace coracle::onnx {

// Applies the op that the row maps to, to input 0.
void ImportUnary(NodeContext& node);

// Rounds to the nearest integers, and halves to even ones, which is IEEE 754's default. Paddle's op
// `round` rounds halves away from 0.
Variable RoundedToEven(NodeContext& node, const Variable& x);

}  // namespace coracle::onnx
