#pragma once
// ScopeBinding: the persistable variables of a running plan, as a scope holds them.
// Internal to executor/.

#include <coracle/executor/plan.h>
#include <coracle/executor/value_pointers.h>
#include <coracle/framework/tensor/tensor.h>

#include <vector>

namespace coracle {

class ScopeBinding {
 public:
  explicit ScopeBinding(const Plan& plan) : plan_(plan) { bound_.resize(plan.persistables.size()); }

  // Whether the scope is the one bound last and still has the plan's types. Looks up no name.
  bool StillMatches(const Scope& scope) const;
  // Points the persistable values at the scope's tensors, makes those that the plan writes first,
  // and marks all that it writes as written. Cheap when nothing has moved. Throws kNotFound for a
  // variable that the scope does not hold, kInvalidArgument for one of another type.
  void Bind(Scope& scope, ValuePointers* pointers);

  // After a sub-block wrote the variable while the plan runs: points its values at the tensor that
  // the scope holds now; at nothing when its type changed. That is an error for a variable that is
  // `used` before the stage ends.
  void Follow(PersistableId id, bool used, ValuePointers* pointers);

  // Whether a run writes some of this memory: that of a variable that steps of the plan write, or
  // blocks that they run.
  bool Writes(const void* data, size_t bytes) const;

  // The scope's value, once bound.
  VarValue& operator[](PersistableId id) const { return *bound_[id].held; }

 private:
  struct Bound {
    VarValue* held = nullptr;    // in the scope
    const void* data = nullptr;  // where its elements were found
  };
  VarValue* Find(const PlanPersistable& persistable, Scope& scope) const;
  // Whether the tensor is the one that was bound. The address alone does not tell: it may be that
  // of a new tensor where the old one was freed.
  bool IsBound(PersistableId id, const Tensor& tensor) const;
  void FindWritten(const Scope& scope);
  void BindOne(PersistableId id, Scope& scope, ValuePointers* pointers);
  void BindAgain(PersistableId id, Scope& scope, ValuePointers* pointers);
  void BindTensor(PersistableId id, ValuePointers* pointers);

  const Plan& plan_;
  IdVector<PersistableId, Bound> bound_;
  std::vector<const VarValue*> written_;  // those that a run writes, as far as the scope has them
  const Scope* scope_ = nullptr;
  uint64_t generation_ = 0;
};

}  // namespace coracle
