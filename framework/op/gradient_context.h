#pragma once
// GradientContext: the interface of gradient rules. A rule appends ops that compute the gradients
// of the op's inputs from the gradients of its outputs; the caller (backward/) accumulates and
// prunes them. With operators/operators.h a rule reads like its formula:
//
//   g.Set("X", 2.0 * g.Grad("Out") * (g.In("X") - g.In("Y")));

#include <coracle/framework/ir/block.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/writer.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

namespace internal {
class GradientStage;
}

// A request for the gradient of a sub-block, made by the gradient rule of the op that runs it.
// Names are resolved in the sub-block.
struct GradientBlockRequest {
  int forward_block = -1;
  // Variables whose values after the sub-block have gradients.
  std::vector<std::string> outputs;
  // Variables whose values before the sub-block need gradients.
  std::vector<std::string> inputs;
  // For a sub-block that runs several times, pairs {before, after}: the value of `after` at the end
  // of one run is the value of `before` at the start of the next (`while`: each variable that it
  // reads and writes, twice; `recurrent`: ex_state and state).
  std::vector<std::pair<std::string, std::string>> carried;
};

struct GradientBlock {
  struct Value {
    std::string var;       // forward variable
    std::string gradient;  // declared in the gradient block, with the type of `var`
  };
  // The new block: forward_block_idx is the sub-block, its parent the block of the gradient op.
  // -1: no wanted variable depends on an output through differentiable ops; nothing was appended.
  int idx = -1;
  // Gradients that the block reads: of the outputs on the gradient path, and of the `after`
  // variables of the carried pairs that matter.
  std::vector<Value> arriving;
  // Gradients that the block writes: of the inputs that have one, and of the `before` variables of
  // the carried pairs that matter. Each is the contribution of one run. The gradient of `before` in
  // one run is the incoming gradient of `after` in the previous run.
  std::vector<Value> leaving;
  // Forward variables that the block and its nested blocks read: variables of the sub-block
  // (including saved copies), and variables of the enclosing blocks.
  std::vector<std::string> inner_reads, outer_reads;

  // The gradient of `var` in a list; "" if it has none.
  static std::string Find(const std::vector<Value>& values, std::string_view var);
};

class GradientContext {
 public:
  // `forward_op` is the op; `op` is the op itself or a renamed copy. `output_grads` has a name for
  // each variable in op.outputs(), slot by slot, or "" if no gradient arrived. `input_grads` does
  // the same for op.inputs(), with "" if no gradient is wanted. `fresh_name` makes names for
  // temporaries. `saved` holds the types of variables that `op` names but `block` does not have
  // yet: copies of values that were overwritten later. `block` receives the rule's ops; for an op
  // of a sub-block it is the gradient block.
  struct Request {
    const OpDesc* op = nullptr;
    const OpDesc* forward_op = nullptr;
    BlockDesc* block = nullptr;
    std::vector<std::string> output_grads;
    std::vector<std::string> input_grads;
    std::vector<std::string> kept_grads;  // for op.outputs(), see OpDef::KeepsOutputs
    std::function<std::string(const std::string& hint)> fresh_name;
    std::vector<std::pair<std::string, VarMeta>> saved;
    std::function<GradientBlock(const GradientBlockRequest&)> gradient_block;
    std::function<std::string(std::string_view slot, const VarMeta& meta)> forward_output;
  };
  GradientContext(const OpRegistry& ops, Request request);
  ~GradientContext();

  // The op with the names from which gradient ops read its variables: the name of a saved copy if a
  // variable was overwritten later.
  const OpDesc& op() const { return *request_.op; }
  // The op as it is in the program, with the names that its sub-blocks use.
  const OpDesc& forward_op() const { return *request_.forward_op; }
  const OpRegistry& registry() const { return ops_; }

  bool HasInput(std::string_view slot) const { return op().HasInput(slot); }
  bool HasOutput(std::string_view slot) const { return op().HasOutput(slot); }
  // The variable in a slot; "" if it is absent.
  std::string Input(std::string_view slot, size_t i = 0) const;
  std::string Output(std::string_view slot, size_t i = 0) const;
  const std::vector<std::string>& Inputs(std::string_view slot) const { return op().Input(slot); }
  const std::vector<std::string>& Outputs(std::string_view slot) const { return op().Output(slot); }
  const VarMeta& MetaOf(const std::string& var) const;  // throws InternalError for an unknown name

  // --- formulas ---

  // The op's variables, and the gradient of an output (zeros if none arrived).
  Variable In(std::string_view slot, size_t i = 0);
  Variable Out(std::string_view slot, size_t i = 0);
  Variable Grad(std::string_view slot, size_t i = 0);
  // Appends an op that has no function on Variables, and returns its only output.
  Variable Make(const std::string& type, SlotList inputs, AttrList attrs = {},
                const std::string& output = "Out");
  // Makes the variable the gradient of the input. Does nothing if that gradient is not wanted, and
  // ops that only it needs are not appended, so a rule needs no conditions. A variable made by a
  // function or by Make is renamed to the gradient's name; any other is assigned to it.
  void Set(std::string_view slot, const Variable& gradient, size_t i = 0);
  // Names a variable made by a function or Make. The default name is "<first input of
  // the op>@TERM".
  Variable Named(const std::string& name, const Variable& made);

  // --- ops with several outputs ---

  bool HasOutputGrad(std::string_view slot, size_t i = 0) const;
  // The name of the variable that Grad returns.
  std::string OutputGrad(std::string_view slot, size_t i = 0);
  std::vector<std::string> OutputGrads(std::string_view slot);
  bool NeedsInputGrad(std::string_view slot, size_t i = 0) const;
  // The name under which to write the gradient of an input; kEmptyVarName if none is wanted.
  std::string InputGrad(std::string_view slot, size_t i = 0) const;
  std::vector<std::string> InputGrads(std::string_view slot) const;
  // The same for the value that an output variable held before the op (OpDef::KeepsOutputs).
  bool NeedsKeptGrad(std::string_view slot, size_t i = 0) const;
  std::string KeptGrad(std::string_view slot, size_t i = 0) const;

  template <class T>
  T Attr(std::string_view name) const {
    return ops_.Get(op().type()).AttrOf<T>(op(), name);
  }

  // The op's attrs with these names, including defaults, with the types that its OpDef declares.
  AttrList ForwardAttrs(std::initializer_list<const char*> names) const;
  // The same for all attrs that both this op's type and `type` declare.
  AttrList ForwardAttrs(std::string_view type) const;
  // The given input slots with their variables, as far as the op has them.
  SlotList ForwardInputs(std::initializer_list<const char*> slots) const;

  // Appends a gradient op. Drops the op, and returns nullptr, if all its outputs are kEmptyVarName.
  OpDesc* Append(std::string type, SlotList inputs, SlotList outputs, AttrList attrs = {});
  // A new variable without a type, for outputs of appended ops that are not gradients.
  std::string Temp(const std::string& hint);
  // The common rule; see OpDef::GradientOp.
  void AppendGradientOp(const std::vector<std::string>& forward_slots);

  // Appends to the program the gradient block of a sub-block that the op runs. Throws
  // kUnimplemented if the sub-block contains an op without a gradient rule, as backward does.
  GradientBlock AppendGradientBlock(const GradientBlockRequest& request) const;
  // The variable in an output slot of the forward op. If the slot is empty, makes a variable of
  // that type in the forward op's block and puts it into the slot (state that only backward reads).
  std::string ForwardOutput(std::string_view slot, const VarMeta& meta) const;

  // Returns the rule's ops that are needed.
  std::vector<std::unique_ptr<OpDesc>> ReleaseOps();
  // Throws kUnimplemented if a gradient arrived for a variable of the slot and the rule never asked
  // for it, since that gradient would silently count as zero.
  void RequireAsked(const Slot& output) const;
  // Whether the rule wrote formulas, whose ops are checked when they are written.
  bool has_formulas() const { return stage_ != nullptr; }

 private:
  internal::GradientStage& GetStage();
  void NoteAsked(std::string_view slot) const;
  void DeclareArrived(BlockDesc& block) const;

  const OpRegistry& ops_;
  Request request_;
  std::vector<std::unique_ptr<OpDesc>> appended_;   // until there is a stage
  std::unique_ptr<internal::GradientStage> stage_;  // made for the first formula
  // Output slots whose gradient the rule asked for.
  mutable std::vector<std::string> asked_;
};

}  // namespace coracle
