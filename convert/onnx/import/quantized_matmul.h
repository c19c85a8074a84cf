#pragma once
// Products of 8-bit integers with results in float32.

#include <coracle/convert/onnx/import/node_context.h>

#include <cstddef>

namespace coracle::onnx {

// The inputs that a product has. A scale or zero point of b belongs to its columns; zero points may
// be absent.
struct ProductInputs {
  size_t a, b, a_scale, b_scale, a_zero, b_zero;
};
// `bias`: a vector for the columns, or empty.
Variable RealProduct(NodeContext& node, const ProductInputs& at, const Variable& bias);

}  // namespace coracle::onnx
