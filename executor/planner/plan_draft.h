#pragma once
// PlanDraft: a plan that is being made. The planners of ops, of sub-blocks and of the stage's end
// write to it. Internal to executor/.

#include <coracle/executor/plan/memory_plan.h>
#include <coracle/executor/planner/cell_values.h>
#include <coracle/executor/planner/persistable_values.h>
#include <coracle/executor/planner/planner.h>
#include <coracle/executor/planner/value_table.h>

#include <map>
#include <string>
#include <vector>

namespace coracle::inline internal {

struct PlanDraft {
  PlanDraft(const PlanContext& context, const PlanRequest& request, ProcedureTable& procedures);

  const PlanContext& context;
  const PlanRequest& request;
  ProcedureTable& procedures;
  Procedure& procedure;
  const BlockDesc& block;
  const BlockUse& use;

  Plan plan;
  ValueTable values;
  CellValues cells;
  PersistableValues persistables;
  MemoryUsage usage;
  // For each value of a persistable variable, the outputs that have taken its LoD since it
  // was written.
  std::map<ValueId, std::vector<ValueId>> lod_users;
  // Maps outputs to the persistable variables whose LoD they copy when they are computed.
  std::map<ValueId, ValueId> lod_copies;

  // The current value of the variable. At its first use it is searched in its cell and in the
  // scope. Empty: it has no value.
  ValueId Find(const std::string& name);
  // Like Find, but throws if there is no value. `op`: the op that needs it; nullptr for a fetch.
  ValueId Get(const std::string& name, const OpDesc* op);
  // Whether the elements of a variable are the same whenever the plan runs.
  bool IsConstant(const std::string& name) const;
  // These elements; nullptr if the variable is not constant.
  const Tensor* Constant(const std::string& name) const;

  // Called before a persistable variable gets another LoD. The values that share its LoD now will
  // copy it when they are computed.
  void KeepLodOf(ValueId persistable);
  // Adds these copies to the steps, when all of them are known.
  void AddLodCopies();

  // Appends a step that reads these values (and writes step.outputs), with its scratch memory.
  StepId AddStep(PlanStep step, std::vector<ValueId> reads,
                 const std::vector<ValueId>& scratch = {});
  void AddCopy(ValueId from, ValueId to, const std::string& where);
  void AddStore(ValueId value, CellId cell, const std::string& where);
  void AddSave(ValueId value, size_t index);
};

}  // namespace coracle::inline internal
