#pragma once
// PlanDraft: a plan that is being made. The planners of ops, of sub-blocks and of the stage's end
// write to it. Internal to executor/.

#include <coracle/executor/cell_values.h>
#include <coracle/executor/memory_plan.h>
#include <coracle/executor/persistable_values.h>
#include <coracle/executor/planner.h>
#include <coracle/executor/value_table.h>

#include <map>
#include <string>
#include <vector>

namespace coracle {

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
  // By the value of a persistable variable: the outputs that have its LoD, since it was written.
  std::map<ValueId, std::vector<ValueId>> lod_users;
  // Outputs that take a copy of a persistable variable's LoD when they are made, from that
  // variable.
  std::map<ValueId, ValueId> lod_copies;

  // The value that the variable stands for now. One that is met for the first time is looked for in
  // its cell and in the scope; nothing: it has no value.
  ValueId Find(const std::string& name);
  // The same; throws when it has no value. `op`: who asks; nullptr for a fetch.
  ValueId Get(const std::string& name, const OpDesc* op);
  // Whether the elements of a variable are the same whenever the plan runs.
  bool IsConstant(const std::string& name) const;
  // These elements; nullptr where they are not the same.
  const Tensor* Constant(const std::string& name) const;

  // Before a persistable variable gets another LoD: what has its LoD now takes a copy of it when it
  // is made.
  void KeepLodOf(ValueId persistable);
  // Adds these copies to the steps, once all are known.
  void AddLodCopies();

  // Appends a step that reads these values (and writes step.outputs), with memory for itself.
  StepId AddStep(PlanStep step, std::vector<ValueId> reads,
                 const std::vector<ValueId>& scratch = {});
  void AddCopy(ValueId from, ValueId to, const std::string& where);
  void AddStore(ValueId value, CellId cell, const std::string& where);
  void AddSave(ValueId value, size_t index);
};

}  // namespace coracle
