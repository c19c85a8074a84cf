#include <coracle/executor/planner/op_planner.h>
#include <coracle/executor/planner/plan_draft.h>
#include <coracle/executor/planner/planner.h>
#include <coracle/executor/planner/stage_end.h>

#include <set>

namespace coracle::inline internal {
namespace {

// The names of the variables that the block, or a block run by its ops, writes.
std::unordered_set<std::string> WrittenNames(const ProgramDesc& program,
                                             const BlockDesc& outermost) {
  std::unordered_set<std::string> names;
  const auto add = [&](const OpDesc& op) {
    op.ForEachOutput([&](const std::string& name) { names.insert(name); });
  };
  outermost.ForEachOp(add);
  for (const BlockDesc* inner : program.BlocksRunBy(outermost)) inner->ForEachOp(add);
  return names;
}

// Declares the cells that the caller binds. It binds them once, before the first stage runs, so all
// of them must exist by then.
void DeclareCallerCells(const BlockUse& use, Procedure& procedure) {
  for (const std::string& name : procedure.parameters()) procedure.CellOf(name, CellOwner::kCaller);
  for (size_t i = 0; i < procedure.results().size(); ++i) procedure.ResultCell(i);
  for (const auto& [name, index] : use.reads_saved) procedure.CellOf(name, CellOwner::kCaller);
  for (const std::string& name : use.captured) procedure.CellOf(name, CellOwner::kCaller);
}

void AddFeeds(PlanDraft& draft) {
  for (FeedId feed : draft.request.feeds.ids()) {
    const auto& [name, meta] = draft.request.feeds[feed];
    const ValueId value = draft.values.AddAt(feed, name, meta);
    draft.values[value].lod_source = value;  // each run's feed has its own LoD
    draft.values.SetCurrent(name, value);
    draft.plan.feeds.Add(value);
  }
}

// Stops when a type is unknown: before an op whose shapes depend on a value, or after an op that
// leaves a variable with a type known only at run time.
void PlanOps(PlanDraft& draft) {
  for (size_t i = draft.request.first_op; i < draft.block.NumOps(); ++i) {
    const OpDesc& op = draft.block.op(i);
    CheckTimeLimit("planning ops");  // constants are folded here, which may take long
    OpPlanner planner(draft, op, i);
    try {
      NameOutOfMemory([&] { planner.Plan(); }, [&] { return NameOf(op); });
    } catch (const NeedsValue& needed) {
      return EndStage(draft, i, op, needed.var);
    } catch (const NeedsLod&) {
      return EndStage(draft, i, op, "");  // the variable is a feed of the next stage
    }
    if (planner.EndsStage()) return EndStage(draft, i + 1, op, "");
  }
  EndBlock(draft);
}

// The storages whose elements a step or a fetch reads.
std::set<StorageId> ReadStorages(const PlanDraft& draft) {
  std::set<StorageId> read;
  for (const std::vector<ValueId>& values : draft.usage.reads) {
    for (ValueId value : values) read.insert(draft.values[value].storage);
  }
  for (ValueId value : draft.plan.results) read.insert(draft.values[value].storage);
  return read;
}

void AddResults(PlanDraft& draft) {
  for (const std::string& name : draft.plan.next ? draft.plan.live_out : draft.request.fetches)
    draft.plan.results.push_back(draft.Get(name, nullptr));
}

}  // namespace

Plan MakePlan(const PlanContext& context, const PlanRequest& request, ProcedureTable& procedures) {
  const ScopedOrigins origins(context.origins);
  PlanDraft draft(context, request, procedures);
  Plan& plan = draft.plan;
  plan.first_op = request.first_op;
  plan.origins = &context.origins;
  plan.guards.feeds = request.feeds;
  plan.guards.values = request.known_values;
  DeclareCallerCells(draft.use, draft.procedure);
  AddFeeds(draft);
  PlanOps(draft);
  AddResults(draft);
  draft.AddLodCopies();
  // All lifetimes are known only now. Sharing must precede the layout, since it merges storages.
  draft.usage.written_names = WrittenNames(context.program, draft.block);
  ShareMemory(plan, draft.usage);
  draft.persistables.AddFrozenElements(ReadStorages(draft));
  LayOutArena(plan);
  // A copy, because the procedure may get more cells while other threads run this plan.
  plan.cells = draft.procedure.cells();
  return std::move(plan);
}

}  // namespace coracle::inline internal
