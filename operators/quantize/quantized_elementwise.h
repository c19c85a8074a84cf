#pragma once
// Binary arithmetic on quantised tensors: quantized_add and quantized_mul.

#include <coracle/framework/op/op_def.h>

#include <cstdint>

namespace coracle::inline internal {

enum class QuantizedBinary { kAdd, kMul };

// The declaration of the op, with its kernels.
OpDef QuantizedBinaryOp(QuantizedBinary op);

// --- the loops, in the widest SIMD of the machine ---

// An operand: bytes, whose highest bit is flipped if they are int8, so that they are uint8 with the
// zero point `zero`.
struct ByteOperand {
  const uint8_t* data = nullptr;
  bool flipped = false;
  bool repeats = false;  // one element for the whole row
  int32_t zero = 0;
};
// How n elements are computed from operands x and y:
//   v = clamp(kAdd: x_factor (x - x zero) + y_factor (y - y zero), low, high)
//       clamp(kMul: x_factor (x - x zero) (y - y zero), low, high)
//   out = v as float32, or round(v) + zero as uint8, whose highest bit is flipped if `flipped`.
struct ByteArithmetic {
  QuantizedBinary op = QuantizedBinary::kAdd;
  float x_factor = 1, y_factor = 1, low = 0, high = 0;
  bool to_reals = false;
  bool flipped = false;
  int32_t zero = 0;
};
// `out` may be an operand that does not repeat.
void ComputeBytes(const ByteArithmetic& how, const ByteOperand& x, const ByteOperand& y, void* out,
                  int64_t n);

}  // namespace coracle::inline internal
