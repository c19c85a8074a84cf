#pragma once
// Writer: appends ops to a block. Everything that writes programs does it through one: the builder,
// gradient rules, clips, schedules, averages.
//
//   Writer w(block, DefaultOps(), {.role = kOptimize, .prefix = "mean"});
//   Variable sum = w.Make("sum", {{"X", names}});
//   Variable mean = sum / 3.0;  // operators/operators.h

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

struct WriterOptions {
  int role = kForward;  // op_role of the ops whose attrs do not give one; kForward is not written
  // New variables are called "<prefix>.<type of the op>_<k>", without a prefix "<type>_<k>".
  std::string prefix = "";
  // Names new variables in place of that. `hint` is the op's type, or what Named is given.
  std::function<std::string(const std::string& hint)> name = nullptr;
  bool stop_gradient = false;  // no gradient flows into new variables of Make
  bool all_attrs = false;      // attrs that are not given are written, too, with their defaults
};

// A handle: copies, and the Variables that it gives, act as one, and outlive the one that was made
// first. The block's program and the registry must live as long as they are used.
class Writer {
 public:
  Writer(BlockDesc& block, const OpRegistry& ops, WriterOptions options = {});
  Writer(const Writer&) = default;  // moves are copies: a handle that was moved from is whole
  Writer& operator=(const Writer&) = default;
  // That of the first Variable that has one; it names what the expression makes. Throws
  // kInvalidArgument when none has, or when two write to different blocks, ops of different
  // registries or of different roles.
  static Writer Of(std::initializer_list<const Variable*> vars);

  BlockDesc& block() const;
  const OpRegistry& ops() const;
  // Later ops go to this block.
  void SetBlock(BlockDesc& block);
  // What later ops have as op_callstack: the place that they come from; {} for none.
  void SetSite(std::vector<std::string> site);
  const std::vector<std::string>& site() const;

  // The variable of that name, looked up recursively from the block; throws kNotFound.
  Variable Var(const std::string& name) const;
  Variable Var(BlockDesc& block, VarDesc& desc) const;  // of that block, which has or sees it
  std::vector<Variable> Vars(const std::vector<std::string>& names) const;

  // Checks the op against its OpDef, appends it and infers the types of its outputs, which are made
  // in the block where they do not exist. A failure throws the op's own error and leaves the block
  // as it was.
  OpDesc& Append(std::string type, SlotList inputs, SlotList outputs, AttrList attrs = {}) const;
  OpDesc& Append(std::unique_ptr<OpDesc> op) const;
  // An op with one output, a new variable.
  Variable Make(const std::string& type, SlotList inputs, AttrList attrs = {},
                const std::string& output = "Out") const;
  // An op with one output, the variable of that name.
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
