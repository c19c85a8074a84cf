#pragma once
// Which values of a graph are a layer's weights by the place where a node reads them.

#include <coracle/convert/onnx/model_file.h>

#include <string_view>
#include <unordered_set>

namespace coracle::onnx {

// The values that a node of `graph` (not of its sub-graphs) reads as weights: the filter and the
// bias of a convolution, of Gemm, of a normalization or a recurrent layer, the second operand of
// MatMul, the slope of PRelu, and what Add adds to the output of a product or convolution. An
// initializer of one element tells by this alone whether it is trained: it may as well be the
// factor of a formula.
std::unordered_set<std::string_view> LayerWeights(const proto::onnx::GraphProto& graph);

}  // namespace coracle::onnx
