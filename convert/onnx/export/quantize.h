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

// A value of one element as a scalar.
Value ScalarOf(OpContext& op, const Value& value);

}  // namespace coracle::onnx
