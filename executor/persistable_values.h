#pragma once
// PersistableValues: the values of a plan that live in the scope, or are frozen.
// Internal to executor/.

#include <coracle/executor/frozen_parameters.h>
#include <coracle/executor/value_table.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/tensor.h>

#include <set>
#include <string>
#include <unordered_set>

namespace coracle {

// Where an op writes a variable. `copy_to`: what it wrote is then copied there; nothing: it stays.
struct OutputPlace {
  ValueId value, copy_to;
};

class PersistableValues {
 public:
  PersistableValues(Plan& plan, ValueTable& values, const BlockDesc& block, const Scope& scope,
                    FrozenParameters& parameters)
      : plan_(plan), values_(values), block_(block), scope_(scope), parameters_(parameters) {}

  bool IsPersistable(const std::string& name) const;
  // The value in the scope, which is bound there when it is first met, or a frozen one; nothing: no
  // such persistable variable, or one whose type only its first write will say.
  ValueId Find(const std::string& name);
  bool IsFrozen(ValueId value) const { return frozen_.count(value) > 0; }
  // Puts the elements of frozen values into the plan, of those in the given storages: what nobody
  // reads as it is needs none.
  void AddFrozenElements(const std::set<StorageId>& read);
  // Where `op` writes the variable, whose value is `bound` so far: in the scope's memory itself,
  // unless the op reads the variable elsewhere than where it writes it. Throws when that changes
  // the type of what the op, or an op before it, reads.
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

}  // namespace coracle
