#pragma once
// InferContext: the interface of shape rules.

#include <coracle/framework/ir/var.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/tensor.h>

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// GotValues: the values that violate a constraint, as text: "64 vs 32", "min 2, max 1".

// A value may be preceded by its name: GotValues("min", 2, "max", 1). Literals and string_views are
// names; a std::string is a finished text.
class GotValues {
 public:
  template <class... T>
  explicit GotValues(const T&... items) {
    (Add(items), ...);
  }
  const std::string& text() const { return text_; }

 private:
  void Add(const char* name) { name_ = name; }
  void Add(std::string_view name) { name_ = name; }
  void Add(const std::string& text);
  void Add(bool value) { Add(std::string(value ? "true" : "false")); }
  void Add(float value);
  void Add(double value);
  template <std::integral T>
  void Add(T value) {
    Add(std::to_string(value));
  }
  void Add(DType dtype) { Add(std::string(ToString(dtype))); }
  void Add(const Shape& shape) { Add(shape.ToString()); }
  void Add(const VarMeta& meta) { Add(meta.ToString()); }
  template <class T>
  void Add(const std::vector<T>& list) {
    std::string text;
    for (const T& item : list) text += (text.empty() ? "" : ", ") + GotValues(item).text();
    Add("[" + text + "]");
  }

  std::string text_;
  std::string_view name_;
};

// Where shape rules read and write the static types of variables: in the VarDescs of a block, or in
// a table of the verifier or of a plan.
class MetaTable {
 public:
  virtual ~MetaTable() = default;
  virtual const VarMeta* Find(const std::string& name) const = 0;  // nullptr if undefined
  virtual void Set(const std::string& name, const VarMeta& meta) = 0;
  // The elements of a variable if they are known before the run; nullptr otherwise.
  virtual const Tensor* Constant(const std::string&) const { return nullptr; }
  // The number of sequences of each level of a variable's LoD; nullopt if it is unknown.
  virtual std::optional<std::vector<int64_t>> LevelSizes(const std::string&) const {
    return std::nullopt;
  }
  // True if every shape must be known (a plan is being made).
  virtual bool exact() const { return false; }
};

// Thrown (inside the executor only) when an exact shape depends on a value that is not known
// before the run.
struct NeedsValue {
  std::string var;
};
// The same for level sizes of a LoD.
struct NeedsLod {};

class InferContext {
 public:
  InferContext(const OpSpec& spec, const OpDesc& op, MetaTable& vars)
      : spec_(spec), op_(op), vars_(vars) {}

  const OpSpec& spec() const { return spec_; }
  const OpDesc& op() const { return op_; }
  bool exact() const { return vars_.exact(); }

  // The context of one item of the op (OpDef::MultiTensor): in a slot that is not shared, index 0
  // is the item's variable.
  InferContext Item(size_t item) const {
    InferContext view = *this;
    view.item_ = item;
    return view;
  }

  // An absent optional slot, and one that holds only @EMPTY@, counts as absent.
  bool HasInput(std::string_view slot) const { return op_.HasInput(slot); }
  bool HasOutput(std::string_view slot) const { return op_.HasOutput(slot); }
  size_t NumInputs(std::string_view slot) const { return op_.Input(slot).size(); }
  size_t NumOutputs(std::string_view slot) const { return op_.Output(slot).size(); }

  // Static type of an input; throws if the slot is absent or the variable undefined.
  const VarMeta& Input(std::string_view slot, size_t i = 0) const;
  const Shape& InputShape(std::string_view slot, size_t i = 0) const {
    return Input(slot, i).shape;
  }
  DType InputDType(std::string_view slot, size_t i = 0) const { return Input(slot, i).dtype; }

  // The type that the program declares for an output variable; nullptr if it declares none.
  const VarMeta* DeclaredOutput(std::string_view slot, size_t i = 0) const;

  // Sets the type of an output; does nothing if the op lacks the output. Throws kOutOfRange for
  // more elements than a shape may have.
  void SetOutput(std::string_view slot, const VarMeta& meta, size_t i = 0);
  void SetOutput(std::string_view slot, DType dtype, const Shape& shape, size_t i = 0);

  template <class T>
  T Attr(std::string_view name) const {
    return spec_.AttrOf<T>(op_, name);
  }

  // The elements of an input if they are known now; else nullptr, or throws NeedsValue like Value.
  const Tensor* Constant(std::string_view slot, size_t i = 0) const;
  // The elements of an integer input if they are known now. In an exact context an unknown value
  // throws NeedsValue, so nullopt is only returned while a program is built or verified.
  std::optional<std::vector<int64_t>> Value(std::string_view slot, size_t i = 0) const;

  // The number of sequences of each level of an input's LoD, outermost first; empty if the input
  // has no LoD, nullopt while a program is built or verified. A plan serves only runs with the same
  // sizes as its shape rules asked for.
  std::optional<std::vector<int64_t>> LevelSizes(std::string_view slot, size_t i = 0) const;

  // Throws kInvalidArgument unless `holds`: "clip: min must not exceed max [clip.C1], got min 2,
  // max 1", with the op's variables and place. The op's declaration gives the text for the
  // constraint `id`; `got` are the values that violate it (see GotValues). An undeclared id is
  // an InternalError.
  template <class... Got>
  void Require(std::string_view id, bool holds, const Got&... got) const {
    static_assert(sizeof...(Got) > 0, "an error must show the values that it got");
    if (!holds) FailWith(id, GotValues(got...));
  }
  template <class... Got>
  [[noreturn]] void Fail(std::string_view id, const Got&... got) const {
    static_assert(sizeof...(Got) > 0, "an error must show the values that it got");
    FailWith(id, GotValues(got...));
  }

  // Whether the dimensions are equal or at least one is unknown.
  static bool Matches(int64_t a, int64_t b) { return a == b || a < 0 || b < 0; }
  // Requires the axis in [-rank, rank) and returns it in [0, rank).
  int Axis(std::string_view id, int64_t axis, int rank) const;

 private:
  [[noreturn]] void FailWith(std::string_view id, const GotValues& got) const;
  size_t At(std::string_view slot, size_t i) const {
    return item_ == 0 || spec_.IsShared(slot) ? i : item_ + i;
  }

  const OpSpec& spec_;
  const OpDesc& op_;
  MetaTable& vars_;
  size_t item_ = 0;
};

// Reports an output whose type the shape rule did not set: a program may list more variables in a
// slot than the op's inputs account for.
[[noreturn]] void ThrowWithoutShape(const OpDesc& op, const std::string& output);

// The lines "  input  X = 'fc1.in' float32[8, 64]", one for each variable of the op, and its place.
std::string DescribeOperands(const OpDesc& op, const MetaTable& vars);

// Runs the shape rule of `op` on the variables of its block: looks inputs up recursively, and makes
// missing outputs in the op's block. Throws kNotFound for an unknown op type.
class OpRegistry;
void InferOp(BlockDesc& block, const OpDesc& op, const OpRegistry& ops);

}  // namespace coracle
