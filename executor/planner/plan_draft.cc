#include <coracle/executor/planner/plan_draft.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle::inline internal {

PlanDraft::PlanDraft(const PlanContext& context, const PlanRequest& request,
                     ProcedureTable& procedures)
    : context(context),
      request(request),
      procedures(procedures),
      procedure(procedures[request.procedure]),
      block(context.program.Block(procedure.block())),
      use(context.UseOf(procedure.block())),
      values(plan, context.memory_limit),
      cells(plan, values, procedure, block, request.input.cells),
      persistables(plan, values, block, request.input.scope, context.frozen) {}

// Cells take precedence over the scope, since a sub-block's argument may have the name of a
// persistable variable.
ValueId PlanDraft::Find(const std::string& name) {
  if (const ValueId now = values.Current(name)) return now;
  if (const ValueId in_cell = cells.Find(name)) return in_cell;
  return persistables.Find(name);
}

ValueId PlanDraft::Get(const std::string& name, const OpDesc* op) {
  if (const ValueId value = Find(name)) return value;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}: the var {} has no value: nothing before the op writes it{}; feed "
                          "it or make it persistable",
                          op ? op->type() : "fetch", QuoteVar(name),
                          procedure.FindCell(name) ? ", and no sub-block that ran did" : ""),
              op ? "  " + Locate(*op) : "");
}

bool PlanDraft::IsConstant(const std::string& name) const {
  const ValueId value = values.Current(name);
  return persistables.IsFrozen(value) || Constant(name);
}

const Tensor* PlanDraft::Constant(const std::string& name) const {
  const ValueId value = values.Current(name);
  if (!value) return nullptr;
  if (persistables.IsFrozen(value)) return &context.frozen.Elements(name);
  const Storage& storage = plan.StorageOf(value);
  if (const ConstantId constant = storage.As<ConstantId>()) return &plan.constants[constant];
  // A guarded value is valid only until an op of the plan writes the variable.
  const bool as_found = storage.IsIn<FeedId>() || storage.IsIn<CellId>() ||
                        (storage.IsIn<PersistableId>() && !persistables.IsWritten(name));
  for (const ValueGuard& guard : plan.guards.values) {
    if (as_found && guard.name == name) return &guard.value;
  }
  return nullptr;
}

void PlanDraft::KeepLodOf(ValueId persistable) {
  const auto found = lod_users.find(persistable);
  if (found == lod_users.end()) return;
  for (const ValueId user : found->second) {
    if (plan.StorageOf(user).IsIn<ConstantId>()) continue;  // no kernel computes it
    values[user].lod_source = user;
    lod_copies[user] = persistable;
  }
  lod_users.erase(found);
}

void PlanDraft::AddLodCopies() {
  if (lod_copies.empty()) return;
  for (PlanStep& step : plan.steps) {
    auto* run = std::get_if<RunKernel>(&step.action);
    for (size_t i = 0; run && i < step.outputs.size(); ++i) {
      const auto copy = lod_copies.find(step.outputs[i]);
      // Inserted before the step's other passes, since one of them may change the variable's LoD.
      if (copy != lod_copies.end())
        run->lods.insert(run->lods.begin(), LodPass{copy->second, copy->first});
    }
  }
}

StepId PlanDraft::AddStep(PlanStep step, std::vector<ValueId> reads,
                          const std::vector<ValueId>& scratch) {
  // Every use makes the storage live at this step. Reads are recorded separately, since an op may
  // overwrite an input only if it reads that storage once.
  const StepId id(plan.steps.size());
  for (ValueId value : reads) usage.uses.emplace_back(id, value);
  for (ValueId value : step.outputs) usage.uses.emplace_back(id, value);
  for (ValueId value : scratch) usage.uses.emplace_back(id, value);
  usage.reads.Add(std::move(reads));
  return plan.steps.Add(std::move(step));
}

void PlanDraft::AddCopy(ValueId from, ValueId to, const std::string& where) {
  const size_t bytes = static_cast<size_t>(plan.ArgOf(from).nbytes());
  AddStep({CopyElements{from, to, bytes}, {to}, where}, {from});
}

void PlanDraft::AddStore(ValueId value, CellId cell, const std::string& where) {
  AddStep({StoreInCell{value, cell}, {}, where}, {value});
}

void PlanDraft::AddSave(ValueId value, size_t index) {
  if (!value) {
    AddStep({SaveForGradient{value, index, false}, {}, ""}, {});
    return;
  }
  // Arrays may be large. The arrays owned by this activation begin the next run empty, so they can
  // be moved instead of copied.
  const CellId cell = plan.StorageOf(value).As<CellId>();
  const bool move = cell && procedure.Owns(cell) && !values[value].IsDense();
  AddStep({SaveForGradient{value, index, move}, {}, ""}, {value});
}

}  // namespace coracle::inline internal
