#include <coracle/executor/planner/stage_end.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <set>

namespace coracle::inline internal {
namespace {

// The names used by the ops from `next` on, by their sub-blocks, and at the end of the block.
std::set<std::string> UsedFrom(const PlanDraft& draft, size_t next) {
  std::set<std::string> used;
  const auto add = [&](const std::vector<std::string>& names) {
    used.insert(names.begin(), names.end());
  };
  add(draft.request.fetches);
  add(draft.procedure.results());
  add(draft.use.saved);
  add(draft.use.writes);
  for (size_t i = next; i < draft.block.NumOps(); ++i) {
    const OpDesc& op = draft.block.op(i);
    op.ForEachInput([&](const std::string& name) { used.insert(name); });
    for (int sub : op.SubBlocks()) add(draft.context.UseOf(sub).captured);
  }
  return used;
}

// A shape can only depend on the elements of a dense tensor.
void RequireDense(PlanDraft& draft, const std::string& shape_var, const OpDesc& op) {
  const ValueId value = draft.Find(shape_var);
  if (value && draft.values[value].IsDense()) return;
  throw Error(
      ErrorCode::kUnimplemented,
      fmt::format("{}: an output shape depends on the value of {}, which is not a dense tensor",
                  op.type(), QuoteVar(shape_var)),
      "  " + Locate(op));
}

// Results have cells separate from their variables: the block may read the variable's value from
// before the run, or return one variable twice.
void StoreResults(PlanDraft& draft) {
  const std::vector<std::string>& results = draft.procedure.results();
  for (size_t i = 0; i < results.size(); ++i) {
    const ValueId value = draft.Find(results[i]);
    if (!value) {
      ThrowInvalid(
          fmt::format("block {} gives no value to its var {}, which the op that runs it needs",
                      draft.context.origins.GivenBlock(draft.block.idx()), QuoteVar(results[i])));
    }
    draft.AddStore(value, draft.procedure.ResultCell(i), "");
  }
}

// Stores variables of the enclosing blocks. The caller shares its cells with this activation, so a
// store here changes the caller's variable. Only the last value of each is stored, at the end,
// because the block's own steps read earlier values from the frame.
void StoreOuterVariables(PlanDraft& draft) {
  for (const std::string& name : draft.use.writes) {
    const ValueId now = draft.values.Current(name);
    const CellId cell = draft.procedure.FindCell(name);
    if (!now || !cell || draft.cells.IsIn(now, cell)) continue;
    if (!draft.plan.StorageOf(now).IsIn<PersistableId>()) draft.AddStore(now, cell, "");
  }
}

}  // namespace

void EndBlock(PlanDraft& draft) {
  StoreOuterVariables(draft);
  StoreResults(draft);
  for (size_t i = 0; i < draft.use.saved.size(); ++i)
    draft.AddSave(draft.Find(draft.use.saved[i]), i);
}

void EndStage(PlanDraft& draft, size_t next, const OpDesc& last, const std::string& shape_var) {
  draft.plan.next = NextStage{next, shape_var};
  std::set<std::string> used = UsedFrom(draft, next);
  if (!shape_var.empty()) {
    RequireDense(draft, shape_var, last);
    used.insert(shape_var);
  }
  // The next stage finds persistable variables in the scope, and values of cells in their cells.
  // All others are passed on: dense tensors as feeds, whose memory the frame keeps, and the rest in
  // cells, since they would not outlive the frame's run otherwise.
  for (const std::string& name : used) {
    const ValueId value = draft.values.Current(name);
    if (!value || draft.plan.StorageOf(value).IsIn<PersistableId>()) continue;
    if (draft.persistables.IsFrozen(value)) continue;
    if (draft.cells.IsIn(value, draft.procedure.FindCell(name))) continue;
    if (draft.values[value].IsDense())
      draft.plan.live_out.push_back(name);
    else
      draft.AddStore(value, draft.procedure.CellOf(name), Locate(last));
  }
}

}  // namespace coracle::inline internal
