#pragma once
// GraphImporter: imports the nodes of one graph (of the model, of a branch or loop, of a function's
// body) and knows the values that are visible in it.

#include <coracle/convert/onnx/import/node_importers.h>
#include <coracle/convert/onnx/import/value.h>
#include <coracle/convert/onnx/memory_use.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/writer.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace coracle::onnx {

// State shared by all graphs of one import.
struct ImportState {
  ImportState(ProgramDesc& program, const OpRegistry& ops, Scope* parameters, VarValues* folded,
              TensorSource tensors);

  ProgramDesc& program;
  Writer writer;
  Scope* parameters;  // values of the persistable variables; nullptr while constants are folded
  VarValues* folded;  // receives constants while constants are folded
  TensorSource tensors;
  std::string name_base = {};  // new variables are named after the node's first output
  int depth = 0;               // of functions and sub-graphs
  // Number of nodes, inputs, attributes and other parts of functions and sub-graphs, counted for
  // each import.
  int64_t inner_parts = 0;
  int64_t unrolled_parts = 0;  // of unrolled bodies
  int64_t sequence_elements = 0;
  int64_t folded_elements = 0;  // of inputs and results of folded nodes
  MemoryUse memory = {};        // of the program
  // To be shown once the import has succeeded, by kind.
  std::map<std::string, std::string> warnings = {};
  // The value that an importer needed to know but did not, when it threw.
  std::string unknown_value = {};
  // The same for branches that were left out, with the nodes of the model that hold them.
  std::vector<std::pair<std::string, const proto::onnx::NodeProto*>> noted_unknown = {};
  std::unordered_map<std::string, const proto::onnx::FunctionProto*> functions = {};
  // Nodes of functions with attributes from their callers filled in, and their bytes.
  std::deque<proto::onnx::NodeProto> resolved_nodes = {};
  uint64_t resolved_bytes = 0;
  // The constants of sub-graphs, shared by all turns of a loop.
  std::unordered_map<const proto::onnx::GraphProto*, Values> inner_initializers = {};
  std::unordered_set<std::string> output_names = {};  // of the model, as variable names

  // A free name for a variable that the present node makes. Most nodes make one of a kind: a
  // counter for each would take a tenth of the time.
  std::string NewName(const std::string& hint) {
    if (name_base.empty()) return program.UniqueName(hint);
    const std::string base = name_base + "." + hint, first = base + "_0";
    std::string name = program.FreeName(first);
    return name == first ? name : program.UniqueName(base);
  }
  // `name` if it is free, else a similar name. Functions and sub-graphs do not use the names of the
  // model's outputs.
  std::string FreeName(const std::string& name);

  // Keeps a warning, up to a limit; one of each kind.
  void Warn(const std::string& kind, const std::string& text);

  // The variable that holds a constant, created if it does not exist.
  Variable VarOf(Value& value, const std::string& name);
  // Makes `var` a parameter of numbers with 2 or 4 bits; returns the variable of the numbers.
  Variable VarOfPacked(VarDesc& var, const Tensor& numbers, int bits);
};

using Opsets = std::map<std::string, int64_t>;  // by domain

class GraphImporter {
 public:
  // If `outer` is given, names are looked up there too.
  GraphImporter(ImportState& state, Opsets opsets, GraphImporter* outer = nullptr)
      : state_(state), opsets_(std::move(opsets)), outer_(outer) {}

  ImportState& state() { return state_; }
  const Opsets& opsets() const { return opsets_; }

  // Throws kInvalidArgument for a name that this graph already has. nullptr means an absent value.
  void Define(const std::string& name, ValuePtr value);
  // Never nullptr: throws kNotFound, and kInvalidArgument for an input that the function's
  // caller omitted.
  ValuePtr Find(const std::string& name) const;
  ValuePtr FindOrAbsent(const std::string& name) const;  // nullptr for such an input, and for ""
  bool Has(const std::string& name) const { return values_.count(name) > 0; }  // only in this graph

  // The initializers of `graph` as constants; `tensors` has their elements in their order.
  void AddInitializers(const proto::onnx::GraphProto& graph, std::vector<Tensor> tensors) {
    DefineInitializers(graph, InitializersOf(graph, std::move(tensors)));
  }
  // Remembers a value that a branch needed to know, while the import goes on.
  void NoteUnknown(const std::string& name);
  // The last imported node.
  const proto::onnx::NodeProto* last_node() const { return last_node_; }
  // Imports the nodes of an inner graph into the writer's block; returns its outputs.
  Values ImportInner(const proto::onnx::GraphProto& graph, const Values& inputs);
  // Imports the nodes of this graph, the model's or an inner one; returns its outputs.
  Values ImportNodes(const proto::onnx::GraphProto& graph);

  // For a node whose results may have different ranks, so that each case needs nodes of its own.
  // Whether that is possible here: not in a function.
  bool CanSplit() const { return graph_ != nullptr; }
  const proto::onnx::GraphProto& graph() const { return *graph_; }
  // Imports the nodes after the present one into the writer's block, with these values as its
  // results; returns the outputs of the graph. May be called for several cases.
  Values ImportRest(const Values& results);
  // Ends the graph at the present node, with these outputs.
  void Finish(Values outputs) { finished_ = std::move(outputs); }

 private:
  static Values InitializersOf(const proto::onnx::GraphProto& graph, std::vector<Tensor> tensors);
  void DefineInitializers(const proto::onnx::GraphProto& graph, const Values& values);
  void AddInnerInitializers(const proto::onnx::GraphProto& graph);
  Values ImportFrom(const proto::onnx::GraphProto& graph, int first);
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
  const proto::onnx::GraphProto* graph_ = nullptr;  // nullptr: nodes of a function
  int position_ = 0;                                // of the last node in `graph_`
  std::optional<Values> finished_;
  std::unordered_map<std::string, ValuePtr> values_;
};

// Counts the parts of a node whose body is unrolled.
class Unrolling {
 public:
  explicit Unrolling(ImportState& state) : state_(state), parts_(state.inner_parts) {}
  // Throws kResourceExhausted if all unrolled bodies of the model together are too large.
  void EndTurn();

 private:
  ImportState& state_;
  int64_t parts_;
};
// `name`, or another name if it has a meaning for files, passes or the executor.
std::string UsableName(const std::string& name);
// The domain in the form of the rows: "ai.onnx" is "".
std::string PlainDomain(const std::string& domain);
// The operator sets that a model or function imports, by domain. Throws kInvalidArgument unless
// there is one of ONNX's own, and for one given twice with two versions.
Opsets OpsetsOf(const google::protobuf::RepeatedPtrField<proto::onnx::OperatorSetIdProto>& imports);
// Functions by "domain:name:overload".
std::string FunctionKey(const std::string& domain, const std::string& name,
                        const std::string& overload);

}  // namespace coracle::onnx
