#pragma once
// Variable: a handle on a variable of a block, as the builder functions take and return it. Cheap
// to copy; valid while its program lives (and stays where it is) and the variable is not removed.

#include <coracle/framework/ir/program.h>

#include <string>

namespace coracle {

class Variable {
 public:
  Variable() = default;
  Variable(BlockDesc* block, VarDesc* desc) : block_(block), desc_(desc) {}
  // The variable of that name, looked up recursively from `block`; throws kNotFound.
  static Variable Of(BlockDesc& block, const std::string& name);

  explicit operator bool() const { return desc_ != nullptr; }
  const std::string& name() const { return desc_->name(); }
  const Shape& shape() const { return desc_->shape(); }
  DType dtype() const { return desc_->dtype(); }
  VarDesc& desc() const { return *desc_; }
  BlockDesc& block() const { return *block_; }
  ProgramDesc& program() const { return block_->program(); }

 private:
  BlockDesc* block_ = nullptr;
  VarDesc* desc_ = nullptr;
};

}  // namespace coracle
