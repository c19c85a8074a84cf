#pragma once
// The operands X and Y of ops that broadcast like Paddle's elementwise_add.

#include <coracle/convert/onnx/export/op_context.h>

namespace coracle::onnx {

struct Operands {
  Value x, y;
};

// Reshapes X and Y so that ONNX broadcasts them as the op does. Without the argument, `axis` is
// read from the op's attr.
Operands Align(OpContext& op, int axis);
Operands Align(OpContext& op);

}  // namespace coracle::onnx
