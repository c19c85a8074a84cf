#include <coracle/executor/planner/sub_block_planner.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

std::vector<std::string> NamesOf(const std::vector<std::pair<std::string, TensorArg>>& args) {
  std::vector<std::string> names;
  for (const auto& [name, arg] : args) names.push_back(name);
  return names;
}

}  // namespace

CallId SubBlockPlanner::AddCall(BlockRef block, const BlockArgs& args) {
  const BlockUse& use = UseOf(block);
  BlockCall call;
  // Another op may run the same block with other arguments, which requires other plans.
  call.procedure = draft_.procedures.Get(block.idx, NamesOf(args.in), NamesOf(args.out));
  call.block = block.idx;
  call.site = draft_.procedure.CallSite(position_, calls_.size());
  Procedure& inner = draft_.procedures[call.procedure];
  BindArguments(args, inner, &call);
  // A gradient block reads the values saved by the forward block's run, not the variables'
  // present values.
  for (const auto& [name, index] : use.reads_saved)
    call.bindings.push_back({inner.CellOf(name, CellOwner::kCaller), SavedItem{index}});
  NotePersistable(use, &call);  // first: values that move to cells keep their LoD
  BindCaptured(use, args, inner, &call);
  calls_.push_back(draft_.plan.calls.Add(std::move(call)));
  return calls_.back();
}

const BlockUse& SubBlockPlanner::UseOf(BlockRef block) const {
  // Calls of functions, whose blocks may precede their callers, have been inlined. Every sub-block
  // now comes after its block, so that planning terminates.
  if (block.idx <= draft_.block.idx() || block.idx >= draft_.context.program.NumBlocks()) {
    ThrowInvalid(fmt::format("{}: block {} is not a sub-block", op_.type(), block.idx),
                 "  " + Locate(op_));
  }
  return draft_.context.UseOf(block.idx);
}

void SubBlockPlanner::BindArguments(const BlockArgs& args, Procedure& inner, BlockCall* call) {
  for (const auto& [name, arg] : args.in) {
    Binding binding = Bind(inner.CellOf(name, CellOwner::kCaller), Plan::IdOf(arg));
    // The kernel fills the cell through Workspace::ValueOf, which does not mark it as set.
    if (const CellId* cell = std::get_if<CellId>(&binding.source))
      binding.source = ArgumentCell{*cell};
    call->bindings.push_back(binding);
  }
  for (size_t i = 0; i < args.out.size(); ++i)
    call->bindings.push_back(Bind(inner.ResultCell(i), Plan::IdOf(args.out[i].second)));
}

// The block may give a persistable variable another type, value or LoD. This plan's assumptions
// hold only until then, so the stage ends.
void SubBlockPlanner::NotePersistable(const BlockUse& use, BlockCall* call) {
  for (const std::string& name : use.writes_persistable) {
    if (!draft_.persistables.IsPersistable(name)) continue;
    const ValueId value = draft_.values.Current(name);
    const PersistableId persistable =
        value ? draft_.plan.StorageOf(value).As<PersistableId>() : PersistableId();
    // A variable that is fed, or set by the caller, is treated as an ordinary one in this plan.
    if (!persistable && (value || draft_.procedure.FindCell(name))) continue;
    changed_.insert(name);
    draft_.plan.written_by_blocks.push_back(name);
    if (!persistable) continue;
    draft_.KeepLodOf(value);
    call->rebindings.push_back({persistable});
  }
}

void SubBlockPlanner::BindCaptured(const BlockUse& use, const BlockArgs& args, Procedure& inner,
                                   BlockCall* call) {
  const std::vector<std::string> parameters = NamesOf(args.in);
  for (size_t i = 0; i < use.captured.size(); ++i) {
    const std::string& name = use.captured[i];
    // A parameter hides the outer variable of the same name.
    if (std::find(parameters.begin(), parameters.end(), name) != parameters.end()) continue;
    // A variable that the block writes may have another type afterwards, which only a cell
    // can hold.
    const ValueId value = use.written[i] ? MoveToCell(name) : draft_.Find(name);
    if (use.written[i]) changed_.insert(name);
    call->bindings.push_back(Bind(inner.CellOf(name, CellOwner::kCaller), value));
  }
}

Binding SubBlockPlanner::Bind(CellId inner, ValueId value) {
  if (!value) return {inner, NoValue()};
  used_.push_back(value);
  if (const CellId cell = draft_.plan.StorageOf(value).As<CellId>()) return {inner, cell};
  return {inner, value};
}

ValueId SubBlockPlanner::MoveToCell(const std::string& name) {
  const ValueId now = draft_.Find(name);
  const CellId cell = draft_.procedure.CellOf(name);
  if (now && draft_.cells.IsIn(now, cell)) return now;
  // A variable without a value gets an empty cell, for the value that the block will write.
  const VarMeta meta = now ? draft_.values[now].meta : UnknownMeta();
  const ValueId moved = draft_.cells.Add(cell, name, meta);
  if (now) {
    draft_.AddStore(now, cell, Locate(op_));
    draft_.values[moved].lod_source = draft_.values[now].lod_source;
    draft_.values.SetCurrent(name, moved);
  }
  return moved;
}

}  // namespace coracle::inline internal
