#pragma once
// FrozenGuard: detects that a scope holds other values than a program was compiled with.
// Internal to executor/.

#include <coracle/framework/ir/var.h>
#include <coracle/framework/tensor/tensor.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle::inline internal {

class FrozenGuard {
 public:
  FrozenGuard() = default;  // watches nothing
  // Watches tensors with a version. Reads all elements once.
  explicit FrozenGuard(const std::unordered_map<std::string, Tensor>& values);

  const std::vector<std::string>& names() const { return names_; }  // sorted

  // The state that one thread found in its last run.
  struct Watch {
    struct Seen {
      const VarValue* held = nullptr;  // in the scope
      // Version of the frozen memory at which its elements were right.
      uint64_t frozen = 0;
      // Version of the tensor in the scope, which has the same elements.
      uint64_t version = 0;
      // The address of the elements of that tensor.
      const void* data = nullptr;
    };
    const Scope* scope = nullptr;
    uint64_t generation = 0;
    std::vector<Seen> seen;  // parallel to names()
  };

  // Throws kInvalidArgument if the scope holds one of the variables with another type or other
  // elements (a missing variable counts as unchanged), or if the elements of the frozen memory have
  // changed through any handle. Compares version numbers if no one has requested write access since
  // the last check; otherwise reads the elements.
  void Check(const Scope& scope, Watch* watch) const;

 private:
  struct Original {
    DType dtype;
    Shape shape;
    const void* data;
    std::weak_ptr<void> memory;  // expires when a packed layout replaces the elements
    uint64_t version, fingerprint;
  };
  void LookUp(const Scope& scope, Watch* watch) const;
  void CheckFrozen(size_t i, Watch::Seen* seen) const;
  void CheckHeld(size_t i, Watch::Seen* seen) const;

  std::vector<std::string> names_;
  std::vector<Original> originals_;  // parallel to names_
};

}  // namespace coracle::inline internal
