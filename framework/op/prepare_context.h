#pragma once
// PrepareContext: what an op sees when it is prepared for a plan.

#include <coracle/framework/op/kernel.h>
#include <coracle/framework/op/op_def.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// Where names become args: implemented by the interpreter and by the executor's planner.
class ArgTable {
 public:
  virtual ~ArgTable() = default;
  virtual TensorArg Read(const std::string& name) = 0;   // the variable as the op reads it
  virtual TensorArg Write(const std::string& name) = 0;  // the variable as the op leaves it
  virtual TensorArg Scratch(DType dtype, const Shape& shape) = 0;
  virtual TensorArg ScratchArray() = 0;
  // Plans a sub-block for the types that enclosing blocks give it; the handle is for
  // Workspace::RunBlock.
  virtual int32_t SubBlock(BlockRef) { throw InternalError("sub-blocks cannot be prepared here"); }
  // The elements of a variable that never change while the plan lives; nullptr otherwise.
  virtual const Tensor* Constant(const std::string& name) = 0;
};

class PrepareContext {
 public:
  PrepareContext(const OpDef& def, const OpDesc& op, ArgTable& args)
      : def_(def), op_(op), args_(args) {}

  const OpDef& def() const { return def_; }
  const OpDesc& op() const { return op_; }

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
    return def_.AttrOf<T>(op_, name);
  }

  // Uninitialised memory that belongs to this op while its kernel runs.
  TensorArg Scratch(DType dtype, const Shape& shape) const { return args_.Scratch(dtype, shape); }
  // A tensor array (empty before the first run) for memory whose size only a run can tell: what the
  // op leaves in it is there in the workspace's next run, so that Tensor::Resize need not allocate.
  TensorArg ScratchArray() const { return args_.ScratchArray(); }
  const Tensor* Constant(std::string_view slot, size_t i = 0) const;
  // The block that an attr names, ready to be run by Workspace::RunBlock.
  int32_t SubBlock(std::string_view attr) const { return args_.SubBlock(Attr<BlockRef>(attr)); }
  // Stream of the op's random draws: from the name of its output variable (rng.h).
  uint64_t RandomStream(std::string_view output_slot) const;

  // "relu: what" with the op's place in the details, as kUnimplemented.
  [[noreturn]] void Unsupported(const std::string& what) const;

 private:
  const OpDef& def_;
  const OpDesc& op_;
  ArgTable& args_;
};

}  // namespace coracle
