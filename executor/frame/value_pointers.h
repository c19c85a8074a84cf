#pragma once
// ValuePointers: the address of the elements of each value of a running plan.
// Internal to executor/.

#include <coracle/executor/plan/plan.h>

#include <vector>

namespace coracle::inline internal {

class ValuePointers {
 public:
  explicit ValuePointers(const Plan& plan) {
    pointers_.resize(plan.values.size());
    values_in_.resize(plan.storages.size());
    for (ValueId value : plan.values.ids()) values_in_[plan.values[value].storage].push_back(value);
  }

  void* operator[](ValueId value) const { return pointers_[value]; }
  // Sets the address of all values in the storage to `data`.
  void Point(StorageId storage, void* data) {
    for (ValueId value : values_in_[storage]) pointers_[value] = data;
  }
  void** data() { return pointers_.data(); }  // indexed by value; the address stays valid

 private:
  IdVector<ValueId, void*> pointers_;
  IdVector<StorageId, std::vector<ValueId>> values_in_;
};

}  // namespace coracle::inline internal
