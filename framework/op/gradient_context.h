#pragma once
// GradientContext: what a gradient rule sees and does. It appends ops that compute the gradients of
// the op's inputs from the gradients of its outputs; accumulation and pruning are the caller's
// (backward/). With operators/operators.h a rule reads like its formula:
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

// The gradient of a sub-block, as the rule of the op that runs it asks for it. Names are as the
// sub-block resolves them.
struct GradientBlockRequest {
  int forward_block = -1;
  // Gradients arrive for the values that these hold after the sub-block.
  std::vector<std::string> outputs;
  // Wanted are the gradients of the values that these hold before it.
  std::vector<std::string> inputs;
  // Of a sub-block that runs several times, {before, after}: what `after` holds when one run ends
  // is what `before` holds when the next begins (`while`: each variable that it reads and writes,
  // twice; `recurrent`: ex_state and state).
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
  // The block reads these: outputs on the path, and of carried pairs those `after` that matter.
  std::vector<Value> arriving;
  // The block leaves these: inputs that have a gradient, and of carried pairs those `before`
  // that matter. The share of one run. What leaves at `before` of a run arrives at `after` of
  // the run before it.
  std::vector<Value> leaving;
  // Forward variables that the block, and blocks nested in it, read: of the sub-block's own (saved
  // copies among them), and of blocks around it.
  std::vector<std::string> inner_reads, outer_reads;

  // The name in a list, "" when it is not there.
  static std::string Find(const std::vector<Value>& values, std::string_view var);
};

class GradientContext {
 public:
  // `forward_op` is the op; `op` the op or a renamed copy.
  // `output_grads` has a name for each variable in op.outputs(), slot after slot: "" where no
  // gradient arrived. `input_grads` likewise for op.inputs(): "" where none is wanted. `fresh_name`
  // makes names for temporaries. `saved` has the types of variables that `op` names and `block`
  // does not hold yet: copies of what was overwritten since. `block` is where the rule's ops go,
  // which for an op of a sub-block is its gradient block.
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

  // The op with the names under which its gradient ops find the values: where a variable was
  // overwritten since, that of a saved copy.
  const OpDesc& op() const { return *request_.op; }
  // The op as it stands in the program: the names by which its sub-blocks know the variables.
  const OpDesc& forward_op() const { return *request_.forward_op; }
  const OpRegistry& registry() const { return ops_; }

  bool HasInput(std::string_view slot) const { return op().HasInput(slot); }
  bool HasOutput(std::string_view slot) const { return op().HasOutput(slot); }
  // The variable in a slot; "" when it is not there.
  std::string Input(std::string_view slot, size_t i = 0) const;
  std::string Output(std::string_view slot, size_t i = 0) const;
  const std::vector<std::string>& Inputs(std::string_view slot) const { return op().Input(slot); }
  const std::vector<std::string>& Outputs(std::string_view slot) const { return op().Output(slot); }
  const VarMeta& MetaOf(const std::string& var) const;  // throws InternalError for an unknown name

  // --- formulas ---

  // The op's variables, and the gradient that arrived for an output: zeros where none did.
  Variable In(std::string_view slot, size_t i = 0);
  Variable Out(std::string_view slot, size_t i = 0);
  Variable Grad(std::string_view slot, size_t i = 0);
  // A new variable, the one output of an op that the functions on Variables do not have.
  Variable Make(const std::string& type, SlotList inputs, AttrList attrs = {},
                const std::string& output = "Out");
  // The variable is the gradient of the input. Where none is wanted that does nothing, and the ops
  // that nobody else needs are not appended: a rule needs no guards. A variable that functions and
  // Make gave gets the gradient's name, another one is assigned to it.
  void Set(std::string_view slot, const Variable& gradient, size_t i = 0);
  // What functions and Make give is called "<first input of the op>@TERM", or this.
  Variable Named(const std::string& name, const Variable& made);

  // --- ops of several outputs ---

  bool HasOutputGrad(std::string_view slot, size_t i = 0) const;
  // The names of what Grad gives.
  std::string OutputGrad(std::string_view slot, size_t i = 0);
  std::vector<std::string> OutputGrads(std::string_view slot);
  bool NeedsInputGrad(std::string_view slot, size_t i = 0) const;
  // The name to write the gradient of an input to; kEmptyVarName when none is wanted.
  std::string InputGrad(std::string_view slot, size_t i = 0) const;
  std::vector<std::string> InputGrads(std::string_view slot) const;
  // The same for the value that an output variable held before the op (OpDef::KeepsOutputs).
  bool NeedsKeptGrad(std::string_view slot, size_t i = 0) const;
  std::string KeptGrad(std::string_view slot, size_t i = 0) const;

  template <class T>
  T Attr(std::string_view name) const {
    return ops_.Get(op().type()).AttrOf<T>(op(), name);
  }

  // The op's attrs of these names, defaults included, of the types of its OpDef.
  AttrList ForwardAttrs(std::initializer_list<const char*> names) const;
  // All that it has and `type` declares, too.
  AttrList ForwardAttrs(std::string_view type) const;
  // Those of these input slots that the op has, under the same names.
  SlotList ForwardInputs(std::initializer_list<const char*> slots) const;

  // Appends a gradient op. An op all of whose outputs are kEmptyVarName is dropped.
  // Returns nullptr then.
  OpDesc* Append(std::string type, SlotList inputs, SlotList outputs, AttrList attrs = {});
  // A new variable without a type, for what an op of Append writes beside gradients.
  std::string Temp(const std::string& hint);
  // The common rule, see OpDef::GradientOp.
  void AppendGradientOp(const std::vector<std::string>& forward_slots);

  // Appends to the program the gradient of a sub-block that the op runs. Throws kUnimplemented as
  // backward does for an op without rule in it.
  GradientBlock AppendGradientBlock(const GradientBlockRequest& request) const;
  // The variable in an output slot of the forward op; when the slot is empty one of that type is
  // made in the forward op's block and put there (state that only backward reads).
  std::string ForwardOutput(std::string_view slot, const VarMeta& meta) const;

  // The ops of the rule, without those that nothing needs.
  std::vector<std::unique_ptr<OpDesc>> TakeOps();
  // Whether the rule wrote formulas, whose ops are checked as they are written.
  bool has_formulas() const { return stage_ != nullptr; }

 private:
  internal::GradientStage& GetStage();
  void DeclareArrived(BlockDesc& block) const;

  const OpRegistry& ops_;
  Request request_;
  std::vector<std::unique_ptr<OpDesc>> appended_;   // until there is a stage
  std::unique_ptr<internal::GradientStage> stage_;  // made for the first formula
};

}  // namespace coracle
