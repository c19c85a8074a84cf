#include <coracle/convert/onnx/import/layer_weights.h>

#include <algorithm>
#include <array>

namespace coracle::onnx {

using proto::onnx::NodeProto;

namespace {

struct WeightInputs {
  std::string_view op_type;
  int first, last;
};

// From the specification of ONNX's operators: names of the inputs in order.
constexpr std::array kWeightInputs = {
    WeightInputs{"BatchNormalization", 1, 4},
    WeightInputs{"Conv", 1, 2},
    WeightInputs{"ConvTranspose", 1, 2},
    WeightInputs{"GRU", 1, 3},
    WeightInputs{"Gemm", 1, 2},
    WeightInputs{"GroupNormalization", 1, 2},
    WeightInputs{"InstanceNormalization", 1, 2},
    WeightInputs{"LSTM", 1, 3},
    WeightInputs{"LayerNormalization", 1, 2},
    WeightInputs{"MatMul", 1, 1},
    WeightInputs{"PRelu", 1, 1},
    WeightInputs{"RMSNormalization", 1, 1},
    WeightInputs{"RNN", 1, 3},
};

bool GivesSums(const NodeProto& node) {
  return node.op_type() == "MatMul" || node.op_type() == "Gemm" || node.op_type() == "Conv" ||
         node.op_type() == "ConvTranspose";
}

}  // namespace

std::unordered_set<std::string_view> LayerWeights(const proto::onnx::GraphProto& graph) {
  std::unordered_set<std::string_view> weights, sums;
  for (const NodeProto& node : graph.node()) {
    if (!node.domain().empty() && node.domain() != "ai.onnx") continue;
    if (GivesSums(node) && node.output_size() > 0) sums.insert(node.output(0));
    if (node.op_type() == "Add" && node.input_size() == 2) {
      for (int i : {0, 1})
        if (sums.count(node.input(1 - i))) weights.insert(node.input(i));
    }
    const auto row =
        std::find_if(kWeightInputs.begin(), kWeightInputs.end(),
                     [&](const WeightInputs& inputs) { return inputs.op_type == node.op_type(); });
    if (row == kWeightInputs.end()) continue;
    for (int i = row->first; i <= std::min(row->last, node.input_size() - 1); ++i)
      weights.insert(node.input(i));
  }
  return weights;
}

}  // namespace coracle::onnx
