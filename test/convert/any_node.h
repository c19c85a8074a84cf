#pragma once
// A model of one node of any op type that an importer knows, made of what its row says of
// its inputs.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/node_importers.h>
#include <coracle/proto/onnx.pb.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace coracle::onnx {

using proto::onnx::AttributeProto;
using proto::onnx::GraphProto;
using proto::onnx::ModelProto;
using proto::onnx::NodeProto;

inline void Declare(GraphProto& graph, const std::string& name, DType dtype, int rank) {
  auto& input = *graph.add_input();
  input.set_name(name);
  auto& type = *input.mutable_type()->mutable_tensor_type();
  type.set_elem_type(ToDataType(dtype));
  type.mutable_shape();
  for (int i = 0; i < rank; ++i) type.mutable_shape()->add_dim()->set_dim_value(2);
}

inline NodeProto& AddNode(GraphProto& graph, const std::string& type,
                          const std::vector<std::string>& inputs, const std::string& output) {
  NodeProto& node = *graph.add_node();
  node.set_op_type(type);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

inline AttributeProto& AddAttr(NodeProto& node, const std::string& name,
                               AttributeProto::AttributeType type) {
  AttributeProto& attr = *node.add_attribute();
  attr.set_name(name);
  attr.set_type(type);
  return attr;
}

// A body that passes on its inputs, `first` of them left out, after as many outputs of true.
inline GraphProto Body(int inputs, int conditions, int first) {
  GraphProto graph;
  for (int i = 0; i < inputs; ++i) graph.add_input()->set_name(fmt::format("b{}", i));
  for (int i = 0; i < conditions; ++i) {
    NodeProto& node = AddNode(graph, "Constant", {}, fmt::format("c{}", i));
    auto& tensor = *AddAttr(node, "value", AttributeProto::TENSOR).mutable_t();
    tensor.set_data_type(proto::onnx::TensorProto::BOOL);
    tensor.add_int32_data(1);
    graph.add_output()->set_name(fmt::format("c{}", i));
  }
  for (int i = first; i < inputs; ++i) {
    AddNode(graph, "Identity", {fmt::format("b{}", i)}, fmt::format("i{}", i));
    graph.add_output()->set_name(fmt::format("i{}", i));
  }
  return graph;
}

// Attributes without which importers refuse a node before they look at its inputs.
inline void AddAttributes(NodeProto& node) {
  static const std::map<std::string, std::map<std::string, std::vector<int64_t>>> ints = {
      {"AveragePool", {{"kernel_shape", {1}}}}, {"LpPool", {{"kernel_shape", {1}}}},
      {"MaxPool", {{"kernel_shape", {1}}}},     {"MaxRoiPool", {{"pooled_shape", {1, 1}}}},
      {"MaxUnpool", {{"kernel_shape", {1}}}},   {"QLinearAveragePool", {{"kernel_shape", {1}}}},
  };
  static const std::map<std::string, std::map<std::string, int64_t>> numbers = {
      {"Attention", {{"q_num_heads", 1}, {"kv_num_heads", 1}}},
      {"Cast", {{"to", 1}}},
      {"Concat", {{"axis", 0}}},
      {"ConcatFromSequence", {{"axis", 0}}},
      {"DepthToSpace", {{"blocksize", 1}}},
      {"DynamicQuantizeLSTM", {{"hidden_size", 2}}},
      {"GroupNorm", {{"groups", 1}, {"activation", 0}}},
      {"GroupNormalization", {{"num_groups", 1}}},
      {"GroupQueryAttention", {{"num_heads", 1}, {"kv_num_heads", 1}}},
      {"LRN", {{"size", 3}}},
      {"LSTM", {{"hidden_size", 2}}},
      {"LinearAttention", {{"q_num_heads", 1}, {"kv_num_heads", 1}}},
      {"MatMulNBits", {{"K", 2}, {"N", 2}, {"block_size", 16}}},
      {"MultiHeadAttention", {{"num_heads", 1}}},
      {"QAttention", {{"num_heads", 1}}},
      {"QLinearConcat", {{"axis", 0}}},
      {"QLinearSoftmax", {{"opset", 13}}},
      {"RotaryEmbedding", {{"num_heads", 1}}},
      {"Scan", {{"num_scan_inputs", 1}}},
      {"SkipGroupNorm", {{"groups", 1}, {"activation", 0}}},
      {"SpaceToDepth", {{"blocksize", 2}}},
      {"Split", {{"num_outputs", 1}}},
  };
  const auto lists = ints.find(node.op_type());
  if (lists != ints.end()) {
    for (const auto& [name, values] : lists->second)
      for (AttributeProto& attr = AddAttr(node, name, AttributeProto::INTS); int64_t value : values)
        attr.add_ints(value);
  }
  // com.microsoft's Attention has attributes of its own.
  const bool fused = node.op_type() == "Attention" && !node.domain().empty();
  const auto singles = numbers.find(fused ? "MultiHeadAttention" : node.op_type());
  if (singles != numbers.end()) {
    for (const auto& [name, value] : singles->second)
      AddAttr(node, name, AttributeProto::INT).set_i(value);
  }
  const int inputs = node.input_size();
  const auto graph = [&](const char* name, const GraphProto& body) {
    *AddAttr(node, name, AttributeProto::GRAPH).mutable_g() = body;
  };
  if (node.op_type() == "If") {
    graph("then_branch", Body(0, 1, 0));
    graph("else_branch", Body(0, 1, 0));
  }
  if (node.op_type() == "Loop") graph("body", Body(inputs < 2 ? 2 : inputs, 1, 2));
  if (node.op_type() == "Scan") graph("body", Body(inputs, 0, 0));
  if (node.op_type() == "SequenceMap") graph("body", Body(inputs, 0, 0));
  if (node.op_type() == "BitShift")
    AddAttr(node, "direction", AttributeProto::STRING).set_s("LEFT");
  if (node.op_type() == "Momentum") AddAttr(node, "mode", AttributeProto::STRING).set_s("standard");
  if (node.op_type() == "Einsum") {
    std::string equation = "...";
    for (int i = 1; i < inputs; ++i) equation += ",...";
    AddAttr(node, "equation", AttributeProto::STRING).set_s(equation);
  }
}

// The value that a node gets as an input.
struct Given {
  enum Kind { kTensor, kConstant, kSequence, kAbsent } kind = kTensor;
  DType dtype = DType::kFloat32;
  int rank = 2;
};

inline Given Usual(const InputRule& rule) {
  Given given;
  given.rank = std::min(std::max(rule.least_rank, 2), rule.most_rank);
  if (rule.holds == 'i') given.dtype = DType::kInt64;
  if (rule.holds == 'b') given.dtype = DType::kBool;
  if (rule.holds == 's') given.dtype = DType::kString;
  if (rule.holds == 'b' || rule.holds == 'i') given.rank = rule.least_rank;
  if (rule.holds == 'S') given.kind = Given::kSequence;
  return given;
}

inline void AddGiven(GraphProto& graph, const Given& given, const std::string& name) {
  if (given.kind == Given::kAbsent) return;
  if (given.kind == Given::kConstant) {
    auto& tensor = *graph.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(ToDataType(given.dtype));
    for (int i = 0; i < given.rank; ++i) tensor.add_dims(2);
    tensor.set_raw_data(std::string(SizeOf(given.dtype) << given.rank, '\1'));
    return;
  }
  const bool sequence = given.kind == Given::kSequence;
  Declare(graph, sequence ? name + "_0" : name, given.dtype, given.rank);
  if (sequence) AddNode(graph, "SequenceConstruct", {name + "_0", name + "_0"}, name);
}

inline ModelProto ModelOf(const NodeImporter& row, const std::vector<Given>& inputs) {
  ModelProto model;
  auto& import = *model.add_opset_import();
  import.set_version(row.domain.empty() ? row.until : kNewestOpset);
  if (!row.domain.empty()) {
    auto& own = *model.add_opset_import();
    own.set_domain(row.domain);
    own.set_version(row.since);
  }
  GraphProto& graph = *model.mutable_graph();
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = fmt::format("x{}", i);
    AddGiven(graph, inputs[i], name);
    names.push_back(inputs[i].kind == Given::kAbsent ? "" : name);
  }
  NodeProto& node = AddNode(graph, row.op_type, names, "y");
  node.set_domain(row.domain);
  AddAttributes(node);
  graph.add_output()->set_name("y");
  return model;
}

inline std::vector<Given> UsualInputs(const NodeImporter& row) {
  std::vector<Given> inputs;
  for (const InputRule& rule : row.inputs) inputs.push_back(Usual(rule));
  return inputs;
}

}  // namespace coracle::onnx
