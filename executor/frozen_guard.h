#pragma once
// FrozenGuard: notices that a scope holds other values than those with which a program was
// compiled. Internal to executor/.

#include <coracle/framework/ir/var.h>
#include <coracle/framework/tensor/tensor.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle {

class FrozenGuard {
 public:
  FrozenGuard() = default;  // of nothing
  // Of tensors with a version. Reads all elements once.
  explicit FrozenGuard(const std::unordered_map<std::string, Tensor>& values);

  const std::vector<std::string>& names() const { return names_; }  // sorted

  // What one thread found when it ran last.
  struct Watch {
    struct Seen {
      const VarValue* held = nullptr;  // in the scope
      uint64_t frozen = 0;             // version of the frozen memory with the right elements
      uint64_t version = 0;            // the same of the scope's tensor, which has them
      const void* data = nullptr;      // at this address
    };
    const Scope* scope = nullptr;
    uint64_t generation = 0;
    std::vector<Seen> seen;  // as names()
  };

  // Throws kInvalidArgument when the scope holds one of the variables with another type or other
  // elements (one that it does not hold is as it was), and when the memory that was frozen has
  // other elements now, whoever else has a handle on it. Compares numbers where nobody has asked
  // for write access since the last time; where somebody has, it reads the elements.
  void Check(const Scope& scope, Watch* watch) const;

 private:
  struct Original {
    DType dtype;
    Shape shape;
    const void* data;
    std::weak_ptr<void> memory;  // gone where a layout has taken its place
    uint64_t version, fingerprint;
  };
  void LookUp(const Scope& scope, Watch* watch) const;
  void CheckFrozen(size_t i, Watch::Seen* seen) const;
  void CheckHeld(size_t i, Watch::Seen* seen) const;

  std::vector<std::string> names_;
  std::vector<Original> originals_;  // as names_
};

}  // namespace coracle
