#pragma once
// Finds the values of a graph that nodes read as layer weights.

#include <coracle/convert/onnx/model_file.h>

#include <string_view>
#include <unordered_set>

namespace coracle::onnx {

// The values that nodes of `graph` (not of its sub-graphs) read as weights: the filter and the bias
// of a convolution, of Gemm, of a normalization or a recurrent layer, the second operand of MatMul,
// the slope of PRelu, and a summand that Add adds to the output of a product or convolution. For an
// initializer of one element, only this tells whether it is trained: it may also be a factor of
// a formula.
std::unordered_set<std::string_view> LayerWeights(const proto::onnx::GraphProto& graph);

}  // namespace coracle::onnx
