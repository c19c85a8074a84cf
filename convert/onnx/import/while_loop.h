#pragma once
// Shared by importers of nodes with inner graphs: sub-blocks, and loops as a while op.

#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/node_context.h>

#include <functional>
#include <vector>

namespace coracle::onnx {

// During its lifetime, ops go to a sub-block: a new one unless it is given.
class InBlock {
 public:
  explicit InBlock(ImportState& state)
      : InBlock(state, state.program.AppendBlock(state.writer.block())) {}
  InBlock(ImportState& state, BlockDesc& inner)
      : writer_(state.writer), outer_(writer_.block()), inner_(inner) {
    writer_.SetBlock(inner_);
  }
  ~InBlock() { writer_.SetBlock(outer_); }
  InBlock(const InBlock&) = delete;
  InBlock& operator=(const InBlock&) = delete;
  BlockDesc& block() { return inner_; }

 private:
  Writer& writer_;
  BlockDesc& outer_;
  BlockDesc& inner_;
};

void Assign(NodeContext& node, const Variable& x, const Variable& out);

// The dims on which both agree.
Shape CommonShape(const Shape& a, const Shape& b);

// Throws unless both are tensors of one type and rank; `what` names them.
void RequireSameKind(const NodeContext& node, const Value& a, const Value& b, const char* what);

// Sets the outputs from `first` on.
void SetAll(NodeContext& node, const Values& values, size_t first);

// The results of a turn of a loop, computed from the counter and the carried values: the condition
// (may be nullptr), the carried values and the collected values.
struct Turn {
  ValuePtr condition;
  Values carried, collected;
};
using BodyFn = std::function<Turn(const Variable& counter, const Values& carried)>;

struct LoopResult {
  Values carried, collected;  // collected along a new first dimension
};

class WhileLoop {
 public:
  // `limit` and `condition` may be empty Variables.
  WhileLoop(NodeContext& node, const Variable& limit, const Variable& condition);

  void AddCarried(const Value& initial, const Variable& var, size_t output);

  LoopResult Run(const BodyFn& body);

 private:
  Variable NewVar(const std::string& hint, DType dtype, const Shape& shape);

  // Whether another turn follows.
  Variable Running(const Variable& condition);

  bool RelaxShapes(const Turn& turn);

  // Collects values and writes the variables of the next turn. A value that is such a variable is
  // copied first.
  void EndTurn(const Turn& turn);

  bool IsOfTheLoop(const Variable& x) const;

  void AppendWhile(BlockDesc& block);

  // The elements along a new first dimension; those of rank 0 without the dim that they have in
  // the program.
  ValuePtr Stacked(const Variable& array, const Value& element);

  NodeContext& node_;
  ImportState& state_;
  BlockDesc& outer_;
  Variable limit_, counter_, running_;
  Values carried_;
  std::vector<Variable> arrays_;
};

}  // namespace coracle::onnx
