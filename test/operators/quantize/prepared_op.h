#pragma once
// One op, prepared as in a plan, with some of its inputs constant. (To the interpreter, no input is
// a constant.)

#include <coracle/framework/op/kernel/kernel_choice.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/operators.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

class PreparedOp : public ArgTable, public Workspace {
 public:
  using Inputs = std::vector<std::pair<std::string, Tensor>>;  // slot, value

  // `in_place`: the output takes the memory of this input, if it is not "".
  PreparedOp(const std::string& type, const Inputs& inputs, const std::string& output,
             const AttrList& attrs, std::set<std::string> constants, KernelMode mode,
             const std::string& in_place = "")
      : output_(output), constants_(std::move(constants)) {
    BlockDesc& block = program_.Root();
    SlotList ins;
    for (const auto& [slot, value] : inputs) {
      VarDesc& var = block.Var(slot);
      var.SetShape(value.shape());
      var.SetDType(value.dtype());
      values_[slot] = value;
      ins.push_back({slot, {slot}});
    }
    block.Var(output);
    const OpDesc& op = block.AppendOp(type, ins, {{output, {output}}}, attrs);
    InferOp(block, op, DefaultOps());
    const VarMeta& made = block.Var(output).meta();
    if (in_place.empty()) {
      values_[output] = Tensor(made.dtype, made.shape);
    } else {
      Tensor copy(made.dtype, made.shape);
      if (made.shape.numel() > 0) std::memcpy(copy.raw(), values_[in_place].raw(), copy.nbytes());
      values_[in_place] = values_[output] = copy;
    }
    kernel_ = PrepareKernel(PrepareContext(DefaultOps().Get(type), op, *this), mode);
  }

  const Tensor& Run() {
    pointers_.clear();
    for (Tensor& tensor : tensors_) pointers_.push_back(tensor.raw());
    data_ = pointers_.data();
    kernel_(*this);
    return tensors_[static_cast<size_t>(args_.at(output_).index)];
  }
  // The way that the op is computed: "reference", ...
  const std::string& way() const { return way_; }

  TensorArg Read(const std::string& name) override { return Write(name); }
  TensorArg Write(const std::string& name) override {
    auto it = args_.find(name);
    if (it != args_.end()) return it->second;
    return args_[name] = Add(values_.at(name));
  }
  TensorArg Scratch(DType dtype, const Shape& shape) override { return Add(Tensor(dtype, shape)); }
  TensorArg ScratchArray() override { throw InternalError("a PreparedOp has no arrays"); }
  TensorArg ScratchValue() override { throw InternalError("a PreparedOp has no values"); }
  int32_t SubBlock(BlockRef, const BlockArgs&) override {
    throw InternalError("a PreparedOp runs no sub-blocks");
  }
  bool HasGradientBlock(BlockRef) override { return false; }
  const Tensor* Constant(const std::string& name) override {
    return constants_.count(name) ? &values_.at(name) : nullptr;
  }
  VarValue& ValueOf(const TensorArg&) override {
    throw InternalError("a PreparedOp has dense tensors");
  }
  const LoD& LodOf(const TensorArg&) override { return lod_; }
  LoD& OutputLod(const TensorArg&) override { return lod_; }
  void NoteKernel(const std::string& name) override { way_ = name; }

 private:
  // Copies share the memory of the tensor.
  TensorArg Add(const Tensor& tensor) {
    TensorArg arg{static_cast<int32_t>(tensors_.size()), tensor.dtype(), tensor.shape(),
                  tensor.shape().numel()};
    tensors_.push_back(tensor);
    return arg;
  }

  ProgramDesc program_;
  std::string output_, way_;
  std::set<std::string> constants_;
  std::map<std::string, Tensor> values_;
  std::map<std::string, TensorArg> args_;
  std::vector<Tensor> tensors_;
  std::vector<void*> pointers_;
  LoD lod_;
  Kernel kernel_;
};

}  // namespace coracle
