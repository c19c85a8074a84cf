#pragma once
// The args of an op with some of them replaced.

#include <coracle/framework/base/file_access.h>
#include <coracle/framework/op/op_context.h>

#include <memory>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Passes every call on to other args. Derive from it and override what differs.
class ForwardingArgs : public ArgTable {
 public:
  explicit ForwardingArgs(ArgTable& args) : args_(args) {}

  TensorArg Read(const std::string& name) override { return args_.Read(name); }
  TensorArg Write(const std::string& name) override { return args_.Write(name); }
  TensorArg Scratch(DType dtype, const Shape& shape) override {
    return args_.Scratch(dtype, shape);
  }
  TensorArg ScratchArray() override { return args_.ScratchArray(); }
  TensorArg ScratchValue() override { return args_.ScratchValue(); }
  int32_t SubBlock(BlockRef block, const BlockArgs& args) override {
    return args_.SubBlock(block, args);
  }
  bool HasGradientBlock(BlockRef block) override { return args_.HasGradientBlock(block); }
  const Tensor* Constant(const std::string& name) override { return args_.Constant(name); }
  std::shared_ptr<const Tensor> Packed(const std::string& name,
                                       const PackedLayout& layout) override {
    return args_.Packed(name, layout);
  }
  FileAccess files() const override { return args_.files(); }
  Kernel Choose(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                const std::vector<KernelWay>& ways) override {
    return args_.Choose(context, tensors, ways);
  }
  void NoteKernel(const std::string& name) override { args_.NoteKernel(name); }

 protected:
  ArgTable& args_;
};

}  // namespace coracle::inline internal
