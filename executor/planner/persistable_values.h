#pragma once
// PersistableValues: the values of a plan that are in the scope or frozen. Internal to executor/.

#include <coracle/executor/planner/frozen_parameters.h>
#include <coracle/executor/planner/value_table.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/tensor.h>

#include <set>
#include <string>
#include <unordered_set>

namespace coracle::inline internal {

// Where an op writes a variable. `copy_to`: if set, the written value is then copied there.
struct OutputPlace {
  ValueId value, copy_to;
};

class PersistableValues {
 public:
  PersistableValues(Plan& plan, ValueTable& values, const BlockDesc& block, const Scope& scope,
                    FrozenParameters& parameters)
      : plan_(plan), values_(values), block_(block), scope_(scope), parameters_(parameters) {}

  bool IsPersistable(const std::string& name) const;
  // The value of a persistable variable: bound to the scope at its first use, or frozen. Empty if
  // there is no such persistable variable, or if only its first write will determine its type.
  ValueId Find(const std::string& name);
  bool IsFrozen(ValueId value) const { return frozen_.count(value) > 0; }
  // Puts the elements of frozen values in the given storages into the plan. Values that no kernel
  // reads in their plain layout need none.
  void AddFrozenElements(const std::set<StorageId>& read);
  // Decides where `op` writes the variable, whose value so far is `bound`: directly into the
  // scope's memory, unless the op also reads the variable and does not update it in place. Throws
  // if that changes the type of a value that the op, or an earlier op, reads.
  OutputPlace AddOutput(const OpDesc& op, const OpSpec& def, const std::string& name,
                        const VarMeta& meta, ValueId bound);

  void NoteRead(const std::string& name) { read_.insert(name); }
  bool IsWritten(const std::string& name) const { return written_.count(name) > 0; }

 private:
  ValueId Bind(const std::string& name, const VarMeta& meta, bool read_first);
  ValueId BindFrozen(const std::string& name, const VarMeta& meta);
  ValueId Rebind(const OpDesc& op, ValueId bound, const VarMeta& meta);
  PlanPersistable& PersistableOf(ValueId value);

  Plan& plan_;
  ValueTable& values_;
  const BlockDesc& block_;
  const Scope& scope_;
  FrozenParameters& parameters_;
  std::set<ValueId> frozen_;
  std::unordered_set<std::string> read_, written_;  // by the steps so far
};

}  // namespace coracle::inline internal
