#include <coracle/passes/passes.h>

#include <algorithm>

namespace coracle::inline internal {

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
    ForEachRunBy(program, op, [&](const OpDesc& run) {
      run.ForEachInput([&](const std::string& name) { needed.insert(name); });
    });
    kept.push_back(std::move(ops[i]));
  }
  std::reverse(kept.begin(), kept.end());
  root.SetOps(std::move(kept));
}

}  // namespace coracle::inline internal
