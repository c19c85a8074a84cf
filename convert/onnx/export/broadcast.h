#pragma once
// The operands X and Y of ops that broadcast like Paddle's elementwise_add.

#include <coracle/convert/onnx/export/op_context.h>

namespace coracle::onnx {

struct Operands {
  Value x, y;
};

// X and Y, reshaped so that ONNX broadcasts them in the same way. `axis` is that of the op (of its
// attr of this name).
Operands Align(OpContext& op, int axis);
Operands Align(OpContext& op);

}  // namespace coracle::onnx
