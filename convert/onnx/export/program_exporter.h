#pragma once
// ProgramExporter: walks an inference program and writes its ops to a Graph.

#include <coracle/convert/onnx/export/graph.h>
#include <coracle/convert/onnx/export/op_context.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/outer_names.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle::onnx {

// Advice for training ops, and for ops that behave as in training.
inline constexpr const char* kInferenceOnly =
    "ONNX takes inference programs: export what SaveInferenceModel writes, or what `coracle "
    "extract` cuts out";

struct ExporterSettings {
  int opset;
  bool may_raise_opset;  // ops that need a later set throw OpsetNeeded instead of an error
  bool one_sequence;     // the rows of a tensor with LoD are one sequence
};

class ProgramExporter {
 public:
  // `parameters` must outlive the graph. Throws like ExportOnnx.
  ProgramExporter(const ProgramDesc& program, const Scope& parameters,
                  const ExporterSettings& settings);

  // Exports inputs, ops and outputs. Throws OpsetNeeded too.
  Graph& Run();

  Graph& graph() { return graph_; }
  bool one_sequence() const { return settings_.one_sequence; }
  bool may_raise_opset() const { return settings_.may_raise_opset; }

  // The value of a variable at `op`. Throws if it has none.
  Value ValueOf(const OpDesc& op, const std::string& name);
  bool HasValue(const std::string& name) const { return Find(name) != nullptr; }
  const Value* FindValue(const std::string& name) const { return Find(name); }
  // The elements of a parameter; nullptr for any other variable.
  const Tensor* ParameterOf(const OpDesc& op, const std::string& name) const;
  void Bind(const OpDesc& op, const std::string& name, const Value& value);
  // Variables whose value was `before` get another value, which must be computed by now.
  void Rebind(const Value& before, const Value& value);
  // The type of a variable after the last op that was exported.
  const VarMeta& MetaOf(const OpDesc& op, const std::string& name) const;

  // --- for ops that run a block ---
  BlockDesc& Block(int idx) { return program_.Block(idx); }
  // The variables around its blocks that they write, each once.
  std::vector<std::string> WrittenBy(const OpDesc& op) const;
  // Bind with a type, which may differ from the variable's type in the program so far; the variable
  // is looked up from the op's block, or from `block`.
  void BindAs(const OpDesc& op, const std::string& name, const Value& value, const VarMeta& meta);
  void BindIn(BlockDesc& block, const std::string& name, const Value& value, const VarMeta& meta);
  // The type of a variable that is valid in all rounds of a loop.
  const VarMeta& SettledMeta(const BlockDesc& block, const std::string& name) const;
  // Bindings between Enter and Leave are visible only inside. The graph's nodes go to a body.
  void Enter();
  GraphPtr Leave();
  void ExportBlock(BlockDesc& block);

  [[noreturn]] void Refuse(const OpDesc& op, const std::string& why) const;
  // The op for messages: its block, its number, its type and its first output.
  std::string PlaceOf(const OpDesc& op) const;

 private:
  const Value* Find(const std::string& name) const;
  void CheckOps() const;
  void CheckOperands(const OpDesc& op) const;
  void AddInputs();
  void AddOutputs();
  void ExportOp(BlockDesc& block, OpDesc& op);
  Value AddParameter(const OpDesc& op, const VarDesc& var);

  ProgramDesc program_;                             // types are those before the op to be exported
  ProgramDesc settled_;                             // types are valid in all rounds of a loop
  std::optional<internal::BlockOuterNames> names_;  // of settled_
  const Scope& parameters_;
  const ExporterSettings settings_;
  Graph graph_;
  std::vector<std::unordered_map<std::string, Value>> values_;  // by the depth of blocks
};

}  // namespace coracle::onnx
