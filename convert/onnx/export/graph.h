#pragma once
// Graph: an ONNX model under construction, with its nodes, constants and names.

#include <coracle/convert/onnx/export/node_types.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/proto/onnx.pb.h>

#include <concepts>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace coracle::onnx {

// A value of the graph: an input, a constant or a result of a node. "" means that an optional input
// is not given. Only Graph interprets it.
using Value = std::string;
using Values = std::vector<Value>;
using GraphPtr = std::shared_ptr<proto::onnx::GraphProto>;

// An attribute of a node: NodeAttr("axis", 1).
class NodeAttr {
 public:
  NodeAttr(const char* name, std::integral auto value)
      : name_(name), value_(static_cast<int64_t>(value)) {}
  NodeAttr(const char* name, std::floating_point auto value)
      : name_(name), value_(static_cast<float>(value)) {}
  NodeAttr(const char* name, const char* value) : name_(name), value_(std::string(value)) {}
  NodeAttr(const char* name, std::string value) : name_(name), value_(std::move(value)) {}
  NodeAttr(const char* name, std::vector<int64_t> value) : name_(name), value_(std::move(value)) {}
  NodeAttr(const char* name, std::vector<float> value) : name_(name), value_(std::move(value)) {}
  NodeAttr(const char* name, std::vector<std::string> value)
      : name_(name), value_(std::move(value)) {}
  NodeAttr(const char* name, GraphPtr value) : name_(name), value_(std::move(value)) {}
  NodeAttr(const char* name, const Tensor& value) : name_(name), value_(value) {}

  void Write(proto::onnx::AttributeProto* proto) const;  // moves a graph out

 private:
  const char* name_;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
               std::vector<std::string>, GraphPtr, Tensor>
      value_;
};
using NodeAttrs = std::vector<NodeAttr>;

// A parameter that becomes an initializer of the model; its elements are not copied.
struct Parameter {
  std::string name;
  const Tensor* tensor;
  int data_type = 0;  // of ONNX, whose packed elements are the tensor's bytes; 0: the tensor's type
  Shape dims = {};    // of packed elements
};

// The node that made a value.
struct Maker {
  std::string op_type;
  Values inputs;
  NodeAttrs attrs;
  size_t output = 0;  // the value's position among the outputs
};

class Graph {
 public:
  explicit Graph(int opset);

  int opset() const { return opset_; }

  // Adds a node to the innermost graph that was entered. `op_type` may begin with com.microsoft, or
  // with ai.onnx.ml, as in "ai.onnx.ml.SVMRegressor"; RequireMl says in which version.
  Value Node(const std::string& op_type, const Values& inputs, const NodeAttrs& attrs = {});
  Values Nodes(const std::string& op_type, const Values& inputs, size_t outputs,
               const NodeAttrs& attrs = {});
  // Equal constants become one value. All constants belong to the outermost graph.
  Value Constant(const Tensor& tensor);
  Value AddParameter(const std::string& name, const Tensor& tensor);
  // A parameter of a type that Coracle lacks: `bytes` is its raw_data. The graph does not know the
  // type of the value. Its name begins with `name`.
  Value AddPacked(const std::string& name, Tensor bytes, int data_type, const Shape& dims);
  const Parameter* FindPacked(const Value& value) const;  // nullptr if it is no such parameter
  // The operator set of ai.onnx.ml that nodes need; 0: none has been needed.
  void RequireMl(int version) { ml_version_ = version; }
  int ml_version() const { return ml_version_; }
  bool uses_microsoft() const { return uses_microsoft_; }
  // The element type of a value; none if the graph does not know it.
  MaybeDType TypeOf(const Value& value) const;
  void SetType(const Value& value, DType dtype) { types_[value] = dtype; }

  // --- what is known about a value, for exporters that recognize several ops as one node ---
  // The node that made it; nullptr for inputs and constants. SetMaker names another op type, which
  // need not be one of ONNX's, that gives this value for these inputs.
  const Maker* MakerOf(const Value& value) const;
  void SetMaker(const Value& value, const std::string& op_type, const Values& inputs);
  // The inputs of the node that made the value if it is of this type; else none.
  Values InputsOf(const Value& value, const std::string& op_type) const;
  // The elements of a parameter or a small constant; else nullptr.
  const Tensor* ConstantOf(const Value& value) const;
  // The shape of a variable's value; -1 is an unknown dim. None if the graph does not know it.
  std::optional<Shape> ShapeOf(const Value& value) const;
  void SetShape(const Value& value, const Shape& shape) { shapes_[value] = shape; }

  // Inputs and outputs of the innermost graph. An input of the model keeps `name`; an input of a
  // body gets a new name.
  Value Input(const std::string& name, DType dtype, const Shape& shape);
  // In a body, the value itself becomes the output, or a copy if it was computed outside.
  void BodyOutput(const Value& value, DType dtype, const Shape& shape);
  // Adds an output of the model; it is called `name` unless that is in use.
  void Output(const Value& value, const std::string& name, DType dtype, const Shape& shape);

  // Between Enter and Leave, nodes go to a body of If, Loop or Scan.
  void Enter();
  GraphPtr Leave();

  // Associates `value` with the program's variable `name`. Of several values of a variable, the
  // last one gets the plain name.
  void CallIt(const Value& value, const std::string& name) { names_.emplace_back(value, name); }
  // Reserves a name for an input or a parameter of the model. Throws for an invalid name.
  void Reserve(const std::string& name);

  // Removes nodes whose results are unused, and names all values. Nothing can be added afterwards.
  void Finish();
  proto::onnx::ModelProto& model() { return model_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  proto::onnx::GraphProto& current() {
    return bodies_.empty() ? *model_.mutable_graph() : *bodies_.back();
  }
  void SetTypes(const proto::onnx::NodeProto& node, const Values& inputs, const Values& outputs);
  Value Temporary(const std::string& hint);
  std::string FreeName(const std::string& prefix);
  void Rename(proto::onnx::GraphProto* graph);

  int opset_;
  int ml_version_ = 0;
  bool uses_microsoft_ = false;
  proto::onnx::ModelProto model_;
  std::vector<GraphPtr> bodies_;
  std::vector<std::unordered_set<Value>> made_in_;  // by the depth of bodies
  std::vector<Parameter> parameters_;
  std::deque<Tensor> packed_;
  std::unordered_map<std::string, Value> constants_;
  std::unordered_map<Value, DType> types_;
  std::unordered_map<Value, Maker> makers_;
  std::unordered_map<Value, Tensor> known_;  // small constants and parameters
  std::unordered_map<Value, Shape> shapes_;
  std::vector<std::string> hints_;  // by the index of the temporary
  std::vector<std::pair<Value, std::string>> names_;
  std::unordered_map<std::string, std::string> final_names_;
  std::unordered_map<std::string, size_t> counters_;
  std::unordered_set<std::string> used_;
  size_t node_count_ = 0;
};

}  // namespace coracle::onnx
