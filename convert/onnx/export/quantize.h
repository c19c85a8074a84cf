#pragma once
// Quantized ops: recognizes what the importer makes of QuantizeLinear, QLinearConv and similar ops,
// and exports these. Programs of quantized models have the parts: integers of 8 bits are converted
// to wider numbers, their zero points subtracted, products summed, scaled, rounded and clamped.
// Each function returns "" for anything else.

#include <coracle/convert/onnx/export/op_context.h>

#include <optional>

namespace coracle::onnx {

// Integers of 8 bits minus their zero point, in a wider dtype.
struct Centred {
  Value integers, zero_point;  // "": no zero point
};
std::optional<Centred> CentredOf(OpContext& op, const Value& value);

// Round(x), which takes halves to even numbers, for the op `where` of the two numbers that Paddle's
// op `round` gives.
Value RoundedToEven(OpContext& op, const Value& condition, const Value& x, const Value& y);

// The product of integers (int32) as MatMulInteger.
Value IntegerProduct(OpContext& op, const Value& x, const Value& y);

// A conversion to int8 or uint8 as QLinearConv, QLinearMatMul, QLinearAdd, QLinearMul,
// DynamicQuantizeLinear or QuantizeLinear.
Value Quantized(OpContext& op, const Value& x, DType to);

// x times y as DequantizeLinear.
Value Dequantized(OpContext& op, const Value& x, const Value& y);

}  // namespace coracle::onnx
