#pragma once
// PrepareContext: what an op sees when it is prepared for a plan.

#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/op_spec.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

class FileAccess;

// Variables of a sub-block that the op which runs it provides, and takes when it has run, besides
// those of the enclosing blocks: (name in the sub-block, arg of the op).
struct BlockArgs {
  std::vector<std::pair<std::string, TensorArg>> in, out;
};

// How a kernel likes to have the elements of a constant.
struct PackedLayout {
  std::string id;  // the same for the same layout
  std::function<Tensor(const Tensor& plain)> pack;
  std::function<Tensor(const Tensor& packed)> unpack = {};  // bit for bit; may be absent
};

// Where names become args: implemented by the interpreter and by the executor's planner.
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
  // The elements of a variable that never change while the plan lives; nullptr otherwise.
  virtual const Tensor* Constant(const std::string& name) = 0;
  // See PrepareContext.
  virtual std::shared_ptr<const Tensor> Packed(const std::string& name, const PackedLayout& layout);
  // What the program's user lets it touch.
  virtual FileAccess files() const;
};

class PrepareContext {
 public:
  PrepareContext(const OpSpec& spec, const OpDesc& op, ArgTable& args)
      : spec_(spec), op_(op), args_(args) {}

  const OpSpec& spec() const { return spec_; }
  const OpDesc& op() const { return op_; }
  ArgTable& args() const { return args_; }

  // The same op seen as one of its items (OpDef::MultiTensor): index 0 of a slot that is not shared
  // means the item's variable.
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
  // An arg that converts to false when the slot is absent, shorter than i, or holds @EMPTY@ there.
  TensorArg Input(std::string_view slot, size_t i = 0) const;
  TensorArg Output(std::string_view slot, size_t i = 0) const;
  std::vector<TensorArg> Inputs(std::string_view slot) const;
  std::vector<TensorArg> Outputs(std::string_view slot) const;

  template <class T>
  T Attr(std::string_view name) const {
    return spec_.AttrOf<T>(op_, name);
  }

  // Uninitialised memory that belongs to this op while its kernel runs.
  TensorArg Scratch(DType dtype, const Shape& shape) const { return args_.Scratch(dtype, shape); }
  // A tensor array (empty before the first run) for memory whose size only a run can tell: what the
  // op leaves in it is there in the workspace's next run, so that Tensor::Resize need not allocate.
  TensorArg ScratchArray() const { return args_.ScratchArray(); }
  // The elements of a variable that never change while the plan lives; nullptr otherwise.
  const Tensor* Constant(std::string_view slot, size_t i = 0) const;
  // Such elements in another layout, which all kernels that ask for it share; nullptr where they
  // are not constant. The kernel that is being prepared must not read the variable itself then (its
  // elements may be gone), unless it asks for Input(slot) again.
  std::shared_ptr<const Tensor> Packed(std::string_view slot, const PackedLayout& layout) const;
  // A value without a type, which keeps its memory from run to run: for what an op hands to a
  // sub-block and takes from it. See Workspace::ValueOf.
  TensorArg ScratchValue() const { return args_.ScratchValue(); }
  // The block that an attr names, ready to be run by Workspace::RunBlock. An `in` is a tensor or
  // other value that is set before each run; an `out`, a ScratchValue, holds afterwards what the
  // block left in the variable (nothing when that has no value).
  int32_t SubBlock(std::string_view attr, const BlockArgs& args = {}) const {
    return args_.SubBlock(Attr<BlockRef>(attr), args);
  }
  // Whether the program has a gradient block of that block, for which its runs must be kept.
  bool HasGradientBlock(std::string_view attr) const {
    return args_.HasGradientBlock(Attr<BlockRef>(attr));
  }
  // The files that the program may touch, for an op with OpDef::NamesFile.
  FileAccess files() const;
  // Stream of the op's random draws: from the name of its output variable (rng.h).
  uint64_t RandomStream(std::string_view output_slot) const;

  // What a kernel throws that finds a constraint of the op broken, to be followed by ", got ...":
  // "rnn: lengths must lie in [0, T] [rnn.C6]".
  std::string Failure(std::string_view id) const { return spec_.Failure(id, ""); }
  // "relu: what" with the op's place in the details, as kUnimplemented.
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
