#pragma once
// InferContext: what a shape rule sees and does.

#include <coracle/framework/ir/var.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/tensor.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// Where a shape rule finds and puts the static types of variables: a block's VarDescs, the
// verifier's view, a plan's.
class MetaTable {
 public:
  virtual ~MetaTable() = default;
  virtual const VarMeta* Find(const std::string& name) const = 0;  // nullptr when undefined
  virtual void Set(const std::string& name, const VarMeta& meta) = 0;
  // The elements of a variable that are known before the run; nullptr otherwise.
  virtual const Tensor* Constant(const std::string&) const { return nullptr; }
  // True when every shape must come out known (a plan is being made).
  virtual bool exact() const { return false; }
};

// Thrown (inside the executor only) when an exact shape depends on a value that is not known before
// the run.
struct NeedsValue {
  std::string var;
};

class InferContext {
 public:
  InferContext(const OpDef& def, const OpDesc& op, MetaTable& vars)
      : def_(def), op_(op), vars_(vars) {}

  const OpDesc& op() const { return op_; }
  bool exact() const { return vars_.exact(); }

  // The same op seen as one of its items (OpDef::MultiTensor): index 0 of a slot that is not shared
  // means the item's variable.
  InferContext Item(size_t item) const {
    InferContext view = *this;
    view.item_ = item;
    return view;
  }

  // An absent optional slot, and one that holds only @EMPTY@, is "not there".
  bool HasInput(std::string_view slot) const { return op_.HasInput(slot); }
  bool HasOutput(std::string_view slot) const { return op_.HasOutput(slot); }
  size_t NumInputs(std::string_view slot) const { return op_.Input(slot).size(); }
  size_t NumOutputs(std::string_view slot) const { return op_.Output(slot).size(); }

  // Static type of an input; throws when the slot is absent or the variable undefined.
  const VarMeta& Input(std::string_view slot, size_t i = 0) const;
  const Shape& InputShape(std::string_view slot, size_t i = 0) const {
    return Input(slot, i).shape;
  }
  DType InputDType(std::string_view slot, size_t i = 0) const { return Input(slot, i).dtype; }

  // What the program declares of an output variable; nullptr when it does not.
  const VarMeta* DeclaredOutput(std::string_view slot, size_t i = 0) const;

  // Give an output its type. Nothing happens for an output that is not there. Throws kOutOfRange
  // for more elements than a shape may have.
  void SetOutput(std::string_view slot, const VarMeta& meta, size_t i = 0);
  void SetOutput(std::string_view slot, DType dtype, const Shape& shape, size_t i = 0);

  template <class T>
  T Attr(std::string_view name) const {
    return def_.AttrOf<T>(op_, name);
  }

  // The elements of an input when they are known now, as they are; nullptr (or NeedsValue) as for
  // Value.
  const Tensor* Constant(std::string_view slot, size_t i = 0) const;
  // The elements of an integer input, when they are known now. In an exact context an unknown value
  // throws NeedsValue, so "unknown" (nullopt) is only seen while a program is built or verified.
  std::optional<std::vector<int64_t>> Value(std::string_view slot, size_t i = 0) const;
  // The same over a variadic slot of one-element tensors; -1 stands for an unknown one.
  std::optional<std::vector<int64_t>> ValueList(std::string_view slot) const;

  // Throws unless `holds`: "clip: min must not exceed max [clip.C1], got 2 vs 1" with the op's
  // variables and place. `id` is the constraint's in the op's doc.
  void Require(std::string_view id, bool holds, std::string_view what,
               std::initializer_list<int64_t> got = {}) const {
    if (!holds) Fail(id, what, got);
  }
  [[noreturn]] void Fail(std::string_view id, std::string_view what,
                         std::initializer_list<int64_t> got = {}) const;
  [[noreturn]] void FailText(std::string_view id, std::string_view what,
                             const std::string& got) const;

  // Equal, or one of the two unknown.
  static bool Matches(int64_t a, int64_t b) { return a == b || a < 0 || b < 0; }
  // Requires the axis in [-rank, rank) and returns it in [0, rank).
  int Axis(std::string_view id, int64_t axis, int rank, std::string_view what = "axis") const;

 private:
  size_t At(std::string_view slot, size_t i) const {
    return item_ == 0 || def_.IsShared(slot) ? i : item_ + i;
  }

  const OpDef& def_;
  const OpDesc& op_;
  MetaTable& vars_;
  size_t item_ = 0;
};

// For an output to which the shape rule gave nothing: a program may list more variables in a slot
// than the op's inputs account for.
[[noreturn]] void ThrowWithoutShape(const OpDesc& op, const std::string& output);

// The lines "  input  X = 'fc1.in' float32[8, 64]", one for each variable of the op, and its place.
std::string DescribeOperands(const OpDesc& op, const MetaTable& vars);

// Runs the shape rule of `op` on the variables of its block: inputs are looked up recursively,
// outputs that do not exist yet are made in the op's block. Throws kNotFound for an unknown op
// type.
class OpRegistry;
void InferOp(BlockDesc& block, const OpDesc& op, const OpRegistry& ops);

}  // namespace coracle
