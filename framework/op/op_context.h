#pragma once
// What the functions of an op declaration get: InferContext of the shape rule, PrepareContext and
// Workspace of the kernels, GradientContext of the gradient rule.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/var.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/writer.h>
#include <coracle/framework/tensor/tensor.h>

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

// --- shape rules ---

// The values that violate a constraint, as text: "64 vs 32", "min 2, max 1". A value may be
// preceded by its name: GotValues("min", 2, "max", 1). Literals and string_views are names; a
// std::string is a finished text.
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

// The slots and attrs of one op, or of one item of it (OpDef::MultiTensor): base of the contexts of
// shape rules and kernels.
class OpItem {
 public:
  const OpSpec& spec() const { return spec_; }
  const OpDesc& op() const { return op_; }

  // An absent optional slot, and one that holds only @EMPTY@, counts as absent.
  bool HasInput(std::string_view slot) const { return op_.HasInput(slot); }
  bool HasOutput(std::string_view slot) const { return op_.HasOutput(slot); }
  size_t NumInputs(std::string_view slot) const { return op_.Input(slot).size(); }
  size_t NumOutputs(std::string_view slot) const { return op_.Output(slot).size(); }

  template <class T>
  T Attr(std::string_view name) const {
    return spec_.AttrOf<T>(op_, name);
  }

 protected:
  OpItem(const OpSpec& spec, const OpDesc& op) : spec_(spec), op_(op) {}
  size_t At(std::string_view slot, size_t i) const {
    return item_ == 0 || spec_.IsShared(slot) ? i : item_ + i;
  }

  const OpSpec& spec_;
  const OpDesc& op_;
  size_t item_ = 0;
};

// What a shape rule gets.
class InferContext : public OpItem {
 public:
  InferContext(const OpSpec& spec, const OpDesc& op, MetaTable& vars)
      : OpItem(spec, op), vars_(vars) {}

  bool exact() const { return vars_.exact(); }

  // The context of one item of the op (OpDef::MultiTensor): in a slot that is not shared, index 0
  // is the item's variable.
  InferContext Item(size_t item) const {
    InferContext view = *this;
    view.item_ = item;
    return view;
  }

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

  MetaTable& vars_;
};

// Reports an output whose type the shape rule did not set: a program may list more variables in a
// slot than the op's inputs account for.
[[noreturn]] void ThrowWithoutShape(const OpDesc& op, const std::string& output);

// The lines "  input  X = 'fc1.in' float32[8, 64]", one for each variable of the op, and its place.
std::string DescribeOperands(const OpDesc& op, const MetaTable& vars);

// Runs the shape rule of `op` on the variables of its block: looks inputs up recursively, and makes
// missing outputs in the op's block. Throws kNotFound for an unknown op type.
void InferOp(BlockDesc& block, const OpDesc& op, const OpRegistry& ops);

// --- how an op is prepared for a plan ---

inline namespace internal {
class FileAccess;
}
class PrepareContext;

// Variables of a sub-block that the op sets before it runs the block or reads afterwards, besides
// the variables of enclosing blocks: (name in the sub-block, arg of the op).
struct BlockArgs {
  std::vector<std::pair<std::string, TensorArg>> in, out;
};

// The layout in which a kernel reads the elements of a constant.
struct PackedLayout {
  std::string id;  // equal ids mean equal layouts
  std::function<Tensor(const Tensor& plain)> pack;
  std::function<Tensor(const Tensor& packed)> unpack = {};  // restores every bit; may be absent
};

// One of several ways to compute an op. They differ in speed and rounding.
struct KernelWay {
  std::string name;  // in profiles
  // Returns an empty Kernel if the way does not support this case or, with `by_rule`, if a fixed
  // rule prefers another way.
  std::function<Kernel(const PrepareContext& context, bool by_rule)> prepare;
};

// Resolves names to args; implemented by the interpreter and by the executor's planner.
class ArgTable {
 public:
  virtual ~ArgTable() = default;
  virtual TensorArg Read(const std::string& name) = 0;   // the variable as the op reads it
  virtual TensorArg Write(const std::string& name) = 0;  // the variable as the op leaves it
  virtual TensorArg Scratch(DType dtype, const Shape& shape) = 0;
  virtual TensorArg ScratchArray() = 0;
  // See PrepareContext.
  virtual TensorArg ScratchValue() = 0;
  virtual int32_t SubBlock(BlockRef block, const BlockArgs& args) = 0;
  virtual bool HasGradientBlock(BlockRef block) = 0;
  // The elements of a variable that never changes while the plan lives; nullptr otherwise.
  virtual const Tensor* Constant(const std::string& name) = 0;
  // See PrepareContext.
  virtual std::shared_ptr<const Tensor> Packed(const std::string& name, const PackedLayout& layout);
  // For Coracle's own code: the files that the program's user lets it access.
  virtual FileAccess files() const;
  // See PrepareContext. This default chooses by the fixed rules.
  virtual Kernel Choose(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                        const std::vector<KernelWay>& ways);
  virtual void NoteKernel(const std::string&) {}
};

// What the function that prepares a kernel gets.
class PrepareContext : public OpItem {
 public:
  PrepareContext(const OpSpec& spec, const OpDesc& op, ArgTable& args)
      : OpItem(spec, op), args_(args) {}

  // The same op with other args.
  PrepareContext(const PrepareContext& like, ArgTable& args) : OpItem(like), args_(args) {}

  ArgTable& args() const { return args_; }

  // The context of one item of the op (OpDef::MultiTensor): in a slot that is not shared, index 0
  // is the item's variable.
  size_t NumItems() const { return spec_.NumItems(op_); }
  PrepareContext Item(size_t item) const {
    PrepareContext view = *this;
    view.item_ = item;
    return view;
  }

  // The arg converts to false if the slot is absent, has no variable i, or has @EMPTY@ there.
  TensorArg Input(std::string_view slot, size_t i = 0) const;
  TensorArg Output(std::string_view slot, size_t i = 0) const;
  std::vector<TensorArg> Inputs(std::string_view slot) const;
  std::vector<TensorArg> Outputs(std::string_view slot) const;

  // Uninitialised memory that this op owns while its kernel runs.
  TensorArg Scratch(DType dtype, const Shape& shape) const { return args_.Scratch(dtype, shape); }
  // A tensor array (empty before the first run) for memory whose size is known only at run
  // time. It keeps its contents until the next run of the workspace, so that Tensor::Resize
  // need not allocate.
  TensorArg ScratchArray() const { return args_.ScratchArray(); }
  // The elements of a variable that never changes while the plan lives; nullptr otherwise.
  const Tensor* Constant(std::string_view slot, size_t i = 0) const;
  // The elements of a constant in another layout, shared by all kernels that ask for it; nullptr if
  // the variable is not constant. If it is, the kernel being prepared must not read the variable
  // itself (its elements may be released), unless it calls Input(slot) again.
  std::shared_ptr<const Tensor> Packed(std::string_view slot, const PackedLayout& layout) const;
  // A value without a type, which keeps its memory from run to run: for values that an op passes to
  // a sub-block and receives from it. See Workspace::ValueOf.
  TensorArg ScratchValue() const { return args_.ScratchValue(); }
  // A handle for Workspace::RunBlock of the block that an attr names. An `in` is a tensor or other
  // value that the op sets before each run. An `out` is a ScratchValue that receives the variable's
  // value after the run (no value if the variable has none).
  int32_t SubBlock(std::string_view attr, const BlockArgs& args = {}) const {
    return args_.SubBlock(Attr<BlockRef>(attr), args);
  }
  // Whether the program has a gradient block of that block, so that the values of its runs must
  // be kept.
  bool HasGradientBlock(std::string_view attr) const {
    return args_.HasGradientBlock(Attr<BlockRef>(attr));
  }
  // For Coracle's own code: the files that the program may access, for an op with OpDef::NamesFile.
  FileAccess files() const;
  // The stream of the op's random draws, derived from the name of its output variable (rng.h).
  uint64_t RandomStream(std::string_view output_slot) const;

  // The kernel of the first way that its rule does not decline. If the program is tuned
  // (CompileOptions::tune), the kernel of the way that is fastest on random elements. Empty if no
  // way supports this case. `tensors`: the args that the kernels read and write, besides their
  // scratch memory.
  Kernel Choose(const std::vector<TensorArg>& tensors, const std::vector<KernelWay>& ways) const {
    return args_.Choose(*this, tensors, ways);
  }
  // Names the way the op is computed, for profiles: "winograd".
  void NoteKernel(const std::string& name) const { args_.NoteKernel(name); }

  // The message of a kernel that finds a constraint violated, to be followed by ", got ...": "rnn:
  // lengths must lie in [0, T] [rnn.C6]".
  std::string Failure(std::string_view id) const { return spec_.Failure(id, ""); }
  // Throws kUnimplemented "relu: what", with the op's place in the details.
  [[noreturn]] void Unsupported(const std::string& what) const;

 private:
  ArgTable& args_;
};

// --- gradient rules ---

inline namespace internal {
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

// The interface of gradient rules. A rule appends ops that compute the gradients of the op's inputs
// from the gradients of its outputs; the caller (backward/) accumulates and prunes them. With
// operators/operators.h a rule reads like its formula:
//
//   g.Set("X", 2.0 * g.Grad("Out") * (g.In("X") - g.In("Y")));
class GradientContext {
 public:
  //   * forward_op: the op; `op` is the op itself or a renamed copy.
  //   * block: receives the rule's ops; for an op of a sub-block it is the gradient block.
  //   * output_grads: a name for each variable in op.outputs(), slot by slot, or "" if no gradient
  //     arrived.
  //   * input_grads: a name for each variable in op.inputs(), or "" if no gradient is wanted.
  //   * fresh_name: makes names for temporaries.
  //   * saved: the types of variables that `op` names but `block` does not have yet, which are
  //     copies of values that were overwritten later.
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
