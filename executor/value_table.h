#pragma once
// ValueTable: the values and storages of a plan that is being made, and which value each variable
// stands for at the op being planned. Internal to executor/.

#include <coracle/executor/plan.h>

#include <string>
#include <unordered_map>

namespace coracle {

class ValueTable {
 public:
  // `memory_limit`: bytes of one value.
  ValueTable(Plan& plan, uint64_t memory_limit) : plan_(plan), memory_limit_(memory_limit) {}

  // A new value in memory of its own: in the arena, or in the frame when it is no dense tensor.
  // Throws OutOfMemory past the limit.
  ValueId AddTemporary(const std::string& name, const VarMeta& meta);
  // A new value whose elements are at a place outside the frame.
  ValueId AddAt(const Place& place, const std::string& name, const VarMeta& meta);
  // A new value that is known now; it is copied into the plan.
  ValueId AddConstant(const std::string& name, const Tensor& value);
  // Throws OutOfMemory when the elements take more than the limit; else their bytes.
  uint64_t CheckAffordable(const std::string& name, const VarMeta& meta) const;

  PlanValue& operator[](ValueId value) { return plan_.values[value]; }
  const PlanValue& operator[](ValueId value) const { return plan_.values[value]; }

  // The value that the variable stands for now; nothing: none was made yet.
  ValueId Current(const std::string& name) const;
  void SetCurrent(const std::string& name, ValueId value) { current_[name] = value; }
  // The next use of the variable looks anew where its value is.
  void Forget(const std::string& name) { current_.erase(name); }

 private:
  ValueId Add(const std::string& name, const VarMeta& meta, Storage storage);

  Plan& plan_;
  uint64_t memory_limit_;
  std::unordered_map<std::string, ValueId> current_;
};

}  // namespace coracle
