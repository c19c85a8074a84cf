#pragma once
// ScopeBinding: binds the persistable variables of a running plan to a scope.
// Internal to executor/.

#include <coracle/executor/frame/value_pointers.h>
#include <coracle/executor/plan/plan.h>
#include <coracle/framework/tensor/tensor.h>

#include <vector>

namespace coracle::inline internal {

class ScopeBinding {
 public:
  explicit ScopeBinding(const Plan& plan) : plan_(plan) { bound_.resize(plan.persistables.size()); }

  // Whether the scope is the last bound one and still has the plan's types. Looks up no names.
  bool StillMatches(const Scope& scope) const;
  // Points the persistable values at the scope's tensors, creates those that the plan writes first,
  // and marks all variables that it writes as written. Cheap if nothing has moved. Throws kNotFound
  // for a variable that the scope does not hold, and kInvalidArgument for one of another type.
  void Bind(Scope& scope, ValuePointers* pointers);

  // Called when a sub-block has written the variable while the plan runs: points its values at the
  // scope's present tensor, or at nothing if its type changed. That is an error for a variable that
  // is `used` before the stage ends.
  void Follow(PersistableId id, bool used, ValuePointers* pointers);

  // Whether a run writes some of this memory: the memory of a variable written by steps of the plan
  // or by blocks that they run.
  bool Writes(const void* data, size_t bytes) const;

  // Gives variables that a run has written strings of their own (string_arena.h).
  void OwnStrings();

  // The scope's value, after binding.
  VarValue& operator[](PersistableId id) const { return *bound_[id].held; }

 private:
  struct Bound {
    VarValue* held = nullptr;    // in the scope
    const void* data = nullptr;  // last known address of its elements
  };
  VarValue* Find(const PlanPersistable& persistable, Scope& scope) const;
  // Whether the tensor is the one that was bound. The address alone cannot decide this, since a new
  // tensor may reuse the address of the old one.
  bool IsBound(PersistableId id, const Tensor& tensor) const;
  void FindWritten(const Scope& scope);
  void BindOne(PersistableId id, Scope& scope, ValuePointers* pointers);
  void BindAgain(PersistableId id, Scope& scope, ValuePointers* pointers);
  void BindTensor(PersistableId id, ValuePointers* pointers);

  const Plan& plan_;
  IdVector<PersistableId, Bound> bound_;
  // The variables that a run writes, as far as the scope has them.
  std::vector<const VarValue*> written_;
  const Scope* scope_ = nullptr;
  uint64_t generation_ = 0;
};

}  // namespace coracle::inline internal
