#include <coracle/executor/planner/block_ops.h>

#include <string>
#include <unordered_map>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;

// A name for a variable of the block that no enclosing block uses.
std::string NameAround(const PlanDraft& draft, std::string name) {
  while (draft.block.FindVarRecursive(name) || draft.values.Current(name)) name += "@FUSED";
  return name;
}

const BlockDesc& BlockOf(const OpDesc& op, const OpSpec& spec, const ProgramDesc& program) {
  const std::vector<int> blocks = op.SubBlocks();
  if (spec.block.runs != BlockRuns::kOnce || spec.block.results.empty() || blocks.size() != 1)
    throw InternalError(op.type() + ": there is no kernel, and no block to run instead");
  return program.Block(blocks[0]);
}

}  // namespace

std::vector<std::unique_ptr<OpDesc>> OpsInPlaceOf(const OpDesc& op, const PlanDraft& draft) {
  const OpSpec& spec = draft.context.ops.Get(op.type());
  const BlockDesc& block = BlockOf(op, spec, draft.context.program);
  // Names in the enclosing block, by name in the block.
  std::unordered_map<std::string, std::string> around;
  for (const auto& [slot, attr] : spec.block.arguments) {
    const Names inner = spec.AttrOf<Names>(op, attr);
    for (size_t i = 0; i < inner.size(); ++i) around[inner[i]] = op.Input(slot)[i];
  }
  std::vector<std::unique_ptr<OpDesc>> ops, assigns;
  for (const auto& [slot, attr] : spec.block.results) {
    const Names inner = spec.AttrOf<Names>(op, attr);
    for (size_t i = 0; i < inner.size(); ++i) {
      const std::string& out = op.Output(slot)[i];
      if (IsEmptyName(out)) continue;
      const bool directly = !op.Reads(out) && !draft.persistables.IsPersistable(out);
      const std::string& made = around[inner[i]] = directly ? out : NameAround(draft, inner[i]);
      if (directly) continue;
      assigns.push_back(
          std::make_unique<OpDesc>("assign", SlotList{{"X", {made}}}, SlotList{{"Out", {out}}}));
      AddOrigins(op, *assigns.back());
    }
  }
  block.ForEachOp([&](const OpDesc& inner) {
    inner.ForEachOutput([&](const std::string& name) {
      if (around.count(name) == 0) around[name] = NameAround(draft, name);
    });
    ops.push_back(std::make_unique<OpDesc>(inner));
    const auto rename = [&](const std::string& name) { return around.at(name); };
    ops.back()->RenameInputs(rename);
    ops.back()->RenameOutputs(rename);
  });
  std::move(assigns.begin(), assigns.end(), std::back_inserter(ops));
  return ops;
}

}  // namespace coracle::inline internal
