#pragma once
// PrepareContext: the interface through which an op is prepared for a plan.

#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_spec.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

class FileAccess;
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
  // The files that the program's user lets it access.
  virtual FileAccess files() const;
  // See PrepareContext. This default chooses by the fixed rules.
  virtual Kernel Choose(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                        const std::vector<KernelWay>& ways);
  virtual void NoteKernel(const std::string&) {}
};

class PrepareContext {
 public:
  PrepareContext(const OpSpec& spec, const OpDesc& op, ArgTable& args)
      : spec_(spec), op_(op), args_(args) {}

  // The same op with other args.
  PrepareContext(const PrepareContext& like, ArgTable& args)
      : spec_(like.spec_), op_(like.op_), args_(args), item_(like.item_) {}

  const OpSpec& spec() const { return spec_; }
  const OpDesc& op() const { return op_; }
  ArgTable& args() const { return args_; }

  // The context of one item of the op (OpDef::MultiTensor): in a slot that is not shared, index 0
  // is the item's variable.
  size_t NumItems() const { return spec_.NumItems(op_); }
  PrepareContext Item(size_t item) const {
    PrepareContext view = *this;
    view.item_ = item;
    return view;
  }

  bool HasInput(std::string_view slot) const { return op_.HasInput(slot); }
  bool HasOutput(std::string_view slot) const { return op_.HasOutput(slot); }
  size_t NumInputs(std::string_view slot) const { return op_.Input(slot).size(); }
  size_t NumOutputs(std::string_view slot) const { return op_.Output(slot).size(); }
  // The arg converts to false if the slot is absent, has no variable i, or has @EMPTY@ there.
  TensorArg Input(std::string_view slot, size_t i = 0) const;
  TensorArg Output(std::string_view slot, size_t i = 0) const;
  std::vector<TensorArg> Inputs(std::string_view slot) const;
  std::vector<TensorArg> Outputs(std::string_view slot) const;

  template <class T>
  T Attr(std::string_view name) const {
    return spec_.AttrOf<T>(op_, name);
  }

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
  // The files that the program may access, for an op with OpDef::NamesFile.
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
  size_t At(std::string_view slot, size_t i) const {
    return item_ == 0 || spec_.IsShared(slot) ? i : item_ + i;
  }

  const OpSpec& spec_;
  const OpDesc& op_;
  ArgTable& args_;
  size_t item_ = 0;
};

}  // namespace coracle
