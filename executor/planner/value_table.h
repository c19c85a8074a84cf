#pragma once
// ValueTable: the values and storages of a plan that is being made, and the current value of each
// variable at the op being planned. Internal to executor/.

#include <coracle/executor/plan/plan.h>

#include <string>
#include <unordered_map>

namespace coracle::inline internal {

class ValueTable {
 public:
  // `memory_limit`: limit for one value, in bytes.
  ValueTable(Plan& plan, uint64_t memory_limit) : plan_(plan), memory_limit_(memory_limit) {}

  // Adds a new value in memory of its own: in the arena, or in the frame if it is not a dense
  // tensor. Throws OutOfMemory past the limit.
  ValueId AddTemporary(const std::string& name, const VarMeta& meta);
  // Adds a new value whose elements are outside the frame.
  ValueId AddAt(const Place& place, const std::string& name, const VarMeta& meta);
  // Adds a new value that is known now; it is copied into the plan.
  ValueId AddConstant(const std::string& name, const Tensor& value);
  // Returns the bytes of the elements; throws OutOfMemory if they exceed the limit.
  uint64_t CheckAffordable(const std::string& name, const VarMeta& meta) const;

  PlanValue& operator[](ValueId value) { return plan_.values[value]; }
  const PlanValue& operator[](ValueId value) const { return plan_.values[value]; }

  // The variable's current value; an empty id before its first write.
  ValueId Current(const std::string& name) const;
  void SetCurrent(const std::string& name, ValueId value) { current_[name] = value; }
  // Makes the next use of the variable search for its value again.
  void Forget(const std::string& name) { current_.erase(name); }

 private:
  ValueId Add(const std::string& name, const VarMeta& meta, Storage storage);

  Plan& plan_;
  uint64_t memory_limit_;
  std::unordered_map<std::string, ValueId> current_;
};

}  // namespace coracle::inline internal
