#pragma once
// Shared by exporters of quantized ops, and what other families recognize of older programs, which
// subtract zero points from converted integers.

#include <coracle/convert/onnx/export/op_context.h>

#include <optional>

namespace coracle::onnx {

// Integers of 8 bits minus their zero point, in a wider dtype.
struct Centred {
  Value integers, zero_point;  // "": no zero point
};
std::optional<Centred> CentredOf(OpContext& op, const Value& value);

// Round(x), which takes halves to even numbers, for the op `where` of the two numbers that Paddle's
// op `round` gives; "" for anything else.
Value RoundedToEven(OpContext& op, const Value& condition, const Value& x, const Value& y);

// The parameter of int4 or uint4 whose numbers `value` has in bytes, in this shape; "" if no
// parameter has them.
Value FourBitsOf(OpContext& op, const Value& value, const Shape& shape);
// The zero points in `slot` as a parameter of int4 or uint4 with that shape; "" if they are not
// constant, or do not fit.
Value FourBitZeros(OpContext& op, const char* slot, const Shape& shape);
// The node type by which the graph knows such a value in bytes.
inline constexpr const char* kFourBits = "numbers of 4 bits in bytes";

// A value of one element as a scalar.
Value ScalarOf(OpContext& op, const Value& value);

}  // namespace coracle::onnx
