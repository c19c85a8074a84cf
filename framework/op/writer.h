#pragma once
// Writer: appends ops to a block. All code that writes programs uses it: the builder, gradient
// rules, clips, schedules, averages.
//
//   Writer w(block, DefaultOps(), {.role = kOptimize, .prefix = "mean"});
//   Variable sum = w.Make("sum", {{"X", names}});
//   Variable mean = sum / 3.0;  // operators/operators.h

#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/op_registry.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

struct WriterOptions {
  // op_role of ops whose attrs do not give one; kForward is not written.
  int role = kForward;
  // The place of the ops in a training step; an op keeps what its own attrs say.
  TrainingMark mark = {};
  // New variables are named "<prefix>.<type of the op>_<k>", or "<type>_<k>" without a prefix.
  std::string prefix = "";
  // Names new variables instead. `hint` is the op's type, or the argument of Named.
  std::function<std::string(const std::string& hint)> name = nullptr;
  bool stop_gradient = false;  // set for new variables made by Make
  bool all_attrs = false;      // also write attrs that are not given, with their defaults
};

// A handle: its copies and the Variables that it returns share one state, which outlives the
// original. The block's program and the registry must live as long as any of them is used.
class Writer {
 public:
  Writer(BlockDesc& block, const OpRegistry& ops, WriterOptions options = {});
  // Moves are copies, so a moved-from handle stays valid.
  Writer(const Writer&) = default;
  Writer& operator=(const Writer&) = default;
  // The Writer of the first Variable that has one; that Variable names the results of the
  // expression. Throws kInvalidArgument if no Variable has a Writer, or if two Writers have
  // different blocks, registries or roles.
  static Writer Of(std::initializer_list<const Variable*> vars);

  BlockDesc& block() const;
  const OpRegistry& ops() const;
  // Directs later ops to this block.
  void SetBlock(BlockDesc& block);
  // Sets the op_callstack of later ops: the place that they come from, {} for none.
  void SetSite(std::vector<std::string> site);
  const std::vector<std::string>& site() const;

  // A Writer with the same options and site whose ops are that part of the training step.
  Writer Part(TrainingPart part, std::string of = "") const;

  // The variable of that name, looked up recursively from the block; throws kNotFound.
  Variable Var(const std::string& name) const;
  // A handle on `desc` as seen from `block`.
  Variable Var(BlockDesc& block, VarDesc& desc) const;
  std::vector<Variable> Vars(const std::vector<std::string>& names) const;

  // Checks the op against its OpDef, appends it and infers the types of its outputs; outputs that
  // do not exist are made in the block. On failure, throws the op's own error and leaves the
  // block unchanged.
  OpDesc& Append(std::string type, SlotList inputs, SlotList outputs, AttrList attrs = {}) const;
  OpDesc& Append(std::unique_ptr<OpDesc> op) const;
  // Appends an op with one output, a new variable.
  Variable Make(const std::string& type, SlotList inputs, AttrList attrs = {},
                const std::string& output = "Out") const;
  // Appends an op with one output, the variable of that name.
  Variable Into(const std::string& name, const std::string& type, SlotList inputs,
                AttrList attrs = {}, const std::string& output = "Out") const;
  // Renames a variable that the last op made: Named("factor", limit / norm).
  Variable Named(const std::string& hint, const Variable& made) const;

 private:
  explicit Writer(std::shared_ptr<internal::WriterState> state) : state_(std::move(state)) {}
  std::string NewName(const std::string& hint) const;

  std::shared_ptr<internal::WriterState> state_;
};

namespace variable_functions {
std::vector<std::string> NamesOf(const std::vector<Variable>& vars);
}

}  // namespace coracle
