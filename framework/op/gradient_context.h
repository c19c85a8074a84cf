#pragma once
// GradientContext: what a gradient rule sees and does. It appends ops that compute the gradients of
// the op's inputs from the gradients of its outputs; accumulation, naming and pruning are the
// caller's (backward/).

#include <coracle/framework/ir/block.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_registry.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

class GradientContext {
 public:
  // `output_grads` has a name for each variable in op.outputs(), slot after slot: "" where no
  // gradient arrived. `input_grads` likewise for op.inputs(): "" where none is wanted. `fresh_name`
  // makes names for temporaries. `saved` has the types of variables that `op` names and `block`
  // does not hold yet: copies of what was overwritten since.
  struct Request {
    const OpDesc* op = nullptr;
    const BlockDesc* block = nullptr;
    std::vector<std::string> output_grads;
    std::vector<std::string> input_grads;
    std::function<std::string(const std::string& hint)> fresh_name;
    std::vector<std::pair<std::string, VarMeta>> saved;
  };
  GradientContext(const OpRegistry& ops, Request request);

  const OpDesc& op() const { return *request_.op; }
  const OpRegistry& registry() const { return ops_; }

  bool HasInput(std::string_view slot) const { return op().HasInput(slot); }
  bool HasOutput(std::string_view slot) const { return op().HasOutput(slot); }
  // The variable in a slot; "" when it is not there.
  std::string Input(std::string_view slot, size_t i = 0) const;
  std::string Output(std::string_view slot, size_t i = 0) const;
  const std::vector<std::string>& Inputs(std::string_view slot) const { return op().Input(slot); }
  const std::vector<std::string>& Outputs(std::string_view slot) const { return op().Output(slot); }
  const VarMeta& MetaOf(const std::string& var) const;  // throws InternalError for an unknown name

  bool HasOutputGrad(std::string_view slot, size_t i = 0) const;
  // The gradient that arrived; when none did, a zero-filled one is appended.
  std::string OutputGrad(std::string_view slot, size_t i = 0);
  bool NeedsInputGrad(std::string_view slot, size_t i = 0) const;
  // The name to write the gradient of an input to; kEmptyVarName when none is wanted.
  std::string InputGrad(std::string_view slot, size_t i = 0) const;
  std::vector<std::string> InputGrads(std::string_view slot) const;

  template <class T>
  T Attr(std::string_view name) const {
    return ops_.Get(op().type()).AttrOf<T>(op(), name);
  }

  // Appends a gradient op. An op all of whose outputs are kEmptyVarName is dropped. Returns nullptr
  // then.
  OpDesc* Append(std::string type, SlotList inputs, SlotList outputs, AttrList attrs = {});
  std::string Temp(const std::string& hint);
  // The common rule, see OpDef::GradientOp.
  void AppendGradientOp(const std::vector<std::string>& forward_slots);

  std::vector<std::unique_ptr<OpDesc>> TakeOps() { return std::move(appended_); }

 private:
  const OpRegistry& ops_;
  Request request_;
  std::vector<std::unique_ptr<OpDesc>> appended_;
};

}  // namespace coracle
