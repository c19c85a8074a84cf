#pragma once
// GraphImporter: imports the nodes of one graph (of the model, of a branch or loop, of a function's
// body) and knows the values that they can name.

#include <coracle/convert/onnx/memory_use.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/framework/op/interpreter.h>
#include <coracle/framework/op/writer.h>

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "node_importers.h"
#include "value.h"

namespace coracle::onnx {

// What all graphs of one import share.
struct ImportState {
  ImportState(ProgramDesc& program, const OpRegistry& ops, Scope* parameters, VarValues* folded,
              TensorSource tensors);

  ProgramDesc& program;
  Writer writer;
  Scope* parameters;  // values of the persistable variables; nullptr while constants are folded
  VarValues* folded;  // where constants go while constants are folded
  TensorSource tensors;
  std::string name_base = {};  // new variables are called after the node's first output
  int depth = 0;               // of functions and sub-graphs
  // Nodes, inputs, attributes and the like of functions and sub-graphs, as often as they were
  // imported.
  int64_t inner_parts = 0;
  int64_t unrolled_parts = 0;  // of bodies that are imported turn by turn
  int64_t sequence_elements = 0;
  int64_t folded_elements = 0;  // of inputs and results of nodes that were computed at once
  MemoryUse memory = {};        // of the program
  // The value that an importer had to know and did not, when it threw.
  std::string unknown_value = {};
  std::unordered_map<std::string, const proto::onnx::FunctionProto*> functions = {};
  // The nodes of functions that take attributes of their callers, with these; and their bytes.
  std::deque<proto::onnx::NodeProto> resolved_nodes = {};
  uint64_t resolved_bytes = 0;
  // The constants of sub-graphs, which each turn of a loop shares.
  std::unordered_map<const proto::onnx::GraphProto*, Values> inner_initializers = {};
  std::unordered_set<std::string> output_names = {};  // of the model, as its variables have them

  // `name` itself while it is free, else one like it. What functions and sub-graphs make leaves the
  // names of the model's outputs to these.
  std::string FreeName(const std::string& name);

  // The variable that holds a constant, made where it has none.
  Variable VarOf(Value& value, const std::string& name);
};

using Opsets = std::map<std::string, int64_t>;  // by domain

class GraphImporter {
 public:
  // Names are looked up in `outer` too, if there is one.
  GraphImporter(ImportState& state, Opsets opsets, GraphImporter* outer = nullptr)
      : state_(state), opsets_(std::move(opsets)), outer_(outer) {}

  ImportState& state() { return state_; }
  const Opsets& opsets() const { return opsets_; }

  // Throws kInvalidArgument for a name that this graph has. nullptr is a value that is absent.
  void Define(const std::string& name, ValuePtr value);
  // Never nullptr: throws kNotFound, and kInvalidArgument for an input that a function's caller
  // left out.
  ValuePtr Find(const std::string& name) const;
  ValuePtr FindOrAbsent(const std::string& name) const;  // nullptr for such an input, and for ""
  bool Has(const std::string& name) const { return values_.count(name) > 0; }  // of its own

  // The initializers of `graph` as constants; `tensors` has their elements in their order.
  void AddInitializers(const proto::onnx::GraphProto& graph, std::vector<Tensor> tensors) {
    DefineInitializers(graph, InitializersOf(graph, std::move(tensors)));
  }
  const proto::onnx::NodeProto* last_node() const { return last_node_; }  // that was imported
  // The nodes of a graph in a node of this one, into the writer's block; returns its outputs.
  Values ImportInner(const proto::onnx::GraphProto& graph, const Values& inputs);
  void ImportNodes(const google::protobuf::RepeatedPtrField<proto::onnx::NodeProto>& nodes);

 private:
  static Values InitializersOf(const proto::onnx::GraphProto& graph, std::vector<Tensor> tensors);
  void DefineInitializers(const proto::onnx::GraphProto& graph, const Values& values);
  void AddInnerInitializers(const proto::onnx::GraphProto& graph);
  void ImportNode(const proto::onnx::NodeProto& node);
  void CallNode(const proto::onnx::NodeProto& node);
  void CallImporter(const proto::onnx::NodeProto& node, int64_t opset);
  bool Fold(NodeContext& node);
  void FinishOutputs(NodeContext& node, size_t first_var, size_t first_op);
  void InlineFunction(const proto::onnx::NodeProto& node,
                      const proto::onnx::FunctionProto& function);
  Values InputsOf(const proto::onnx::NodeProto& node) const;  // nullptr: absent
  int64_t OpsetOf(const std::string& domain) const;

  ImportState& state_;
  Opsets opsets_;
  GraphImporter* outer_;
  const proto::onnx::NodeProto* last_node_ = nullptr;
  std::unordered_map<std::string, ValuePtr> values_;
};

// Counts what a node becomes that imports a body turn by turn.
class Unrolling {
 public:
  explicit Unrolling(ImportState& state) : state_(state), parts_(state.inner_parts) {}
  // Throws kResourceExhausted where all such bodies of the model became too much.
  void EndTurn();

 private:
  ImportState& state_;
  int64_t parts_;
};
// `name`, or another one where that means something to files, passes or the executor.
std::string UsableName(const std::string& name);
// The domain as rows have it: "ai.onnx" is "".
std::string PlainDomain(const std::string& domain);
// The operator sets that a model or function imports, by domain. Throws kInvalidArgument unless
// there is one of ONNX's own, and for one given twice with two versions.
Opsets OpsetsOf(const google::protobuf::RepeatedPtrField<proto::onnx::OperatorSetIdProto>& imports);
// Functions by "domain:name:overload".
std::string FunctionKey(const std::string& domain, const std::string& name,
                        const std::string& overload);

}  // namespace coracle::onnx
