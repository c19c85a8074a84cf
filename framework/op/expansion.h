#pragma once
// Expansions: the ops that an op with OpDef::Expands joins. They replace it before backward
// differentiates a program and before a program runs.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/writer.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// The interface of an expansion:
//
//   const Variable sum = ctx.In("X") + ctx.In("Y");
//   ctx.Into("Out", "relu", {{"X", {sum.name()}}});
class ExpandContext {
 public:
  using NewName = std::function<std::string(const std::string& hint)>;
  ExpandContext(const OpSpec& spec, const OpDesc& op, const Writer& writer, const NewName& new_name)
      : spec_(spec), op_(op), writer_(writer), new_name_(new_name) {}

  bool HasInput(std::string_view slot) const { return op_.HasInput(slot); }
  size_t NumInputs(std::string_view slot) const { return op_.Input(slot).size(); }
  Variable In(std::string_view slot, size_t i = 0) const;
  const Shape& InShape(std::string_view slot, size_t i = 0) const;
  // The given input slots with their variables, as far as the op has them.
  SlotList Inputs(std::initializer_list<const char*> slots) const;
  template <class T>
  T Attr(std::string_view name) const {
    return spec_.AttrOf<T>(op_, name);
  }
  // All attrs that both this op's type and `type` declare, including defaults.
  AttrList AttrsOf(std::string_view type) const;

  // Appends an op with one output, a new variable.
  Variable Make(const std::string& type, SlotList inputs, AttrList attrs = {},
                const std::string& output = "Out") const;
  Variable Var(const std::string& name) const { return writer_.Var(name); }
  // The name under which an op writes an output of this op: a new variable if this op lacks the
  // output, or reads the variable that it writes.
  std::string Out(std::string_view slot, size_t i = 0);
  // Appends an op with one output, the output `slot` of this op.
  Variable Into(std::string_view slot, const std::string& type, SlotList inputs,
                AttrList attrs = {}, const std::string& output = "Out");
  void Append(const std::string& type, SlotList inputs, SlotList outputs,
              AttrList attrs = {}) const;

  // For ExpandOp: copies outputs that the op also reads, and checks what the expansion wrote.
  void Finish();

 private:
  const OpSpec& spec_;
  const OpDesc& op_;
  const Writer& writer_;
  const NewName& new_name_;
  std::vector<std::pair<std::string, std::string>> copies_;  // (new variable, output)
};

// The ops that `op` joins, as a program with one block. It declares the variables of `op` with
// their `types`, and new ones with names of `new_name`. Throws the error of the first of these ops
// that refuses its inputs, with the place of `op`.
ProgramDesc ExpandOp(const OpSpec& spec, const OpDesc& op, const OpRegistry& ops,
                     const MetaTable& types, const ExpandContext::NewName& new_name);

}  // namespace coracle::inline internal
