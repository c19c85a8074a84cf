#include <coracle/passes/passes.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// Adds all variables that the op and its sub-blocks read; a sub-block may read outer variables.
void AddInputs(const ProgramDesc& program, const OpDesc& op,
               std::unordered_set<std::string>& names) {
  auto add = [&](const std::string& name) { names.insert(name); };
  op.ForEachInput(add);
  for (const BlockDesc* inner : program.BlocksRunBy(op))
    inner->ForEachOp([&](const OpDesc& run) { run.ForEachInput(add); });
}

}  // namespace

void EliminateDeadCode(ProgramDesc& program, const PassContext& context) {
  BlockDesc& root = program.Root();
  std::unordered_set<std::string> needed;
  std::vector<std::unique_ptr<OpDesc>> ops = root.ReleaseOps(), kept;
  for (size_t i = ops.size(); i-- > 0;) {
    const OpDesc& op = *ops[i];
    const OpSpec* def = context.ops.Find(op.type());
    const bool live = !def || def->side_effect || def->kind != OpKind::kCompute ||
                      op.HasSubBlock() || op.AnyOutput([&](const std::string& name) {
                        return needed.count(name) > 0 || context.IsVisible(root, name);
                      });
    if (!live) continue;
    AddInputs(program, op, needed);
    kept.push_back(std::move(ops[i]));
  }
  std::reverse(kept.begin(), kept.end());
  root.SetOps(std::move(kept));
}

}  // namespace coracle::inline internal
