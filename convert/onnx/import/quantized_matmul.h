#pragma once
// Operands of products of 8-bit integers. In float64, the sums of their products are exact.

#include <coracle/convert/onnx/import/node_context.h>

#include <cstddef>

namespace coracle::onnx {

// Input i in float64, minus `zero` (none if empty). Refuses numbers that do not have 8 bits.
Variable Centred(NodeContext& node, size_t i, const Variable& zero);
// Input i in float64; an empty variable if it is not given.
Variable WideIn(NodeContext& node, size_t i);

}  // namespace coracle::onnx
