#include <coracle/passes/pass.h>

#include <algorithm>

namespace coracle {
namespace {

void AddInputs(const OpDesc& op, std::unordered_set<std::string>& names) {
  for (const Slot& slot : op.inputs()) names.insert(slot.args.begin(), slot.args.end());
}

// Everything that the ops of a sub-block read may come from outside of it.
void AddSubBlockInputs(const ProgramDesc& program, const OpDesc& op,
                       std::unordered_set<std::string>& names) {
  std::vector<const OpDesc*> queue = {&op};
  std::unordered_set<int> seen;
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const NamedAttr& attr : queue[i]->attrs()) {
      const auto* ref = std::get_if<BlockRef>(&attr.value);
      if (!ref || !seen.insert(ref->idx).second) continue;
      const BlockDesc& block = program.Block(ref->idx);
      for (size_t k = 0; k < block.NumOps(); ++k) {
        AddInputs(block.op(k), names);
        queue.push_back(&block.op(k));
      }
    }
  }
}

bool HasSubBlock(const OpDesc& op) {
  for (const NamedAttr& attr : op.attrs()) {
    if (std::holds_alternative<BlockRef>(attr.value)) return true;
  }
  return false;
}

}  // namespace

void EliminateDeadCode(ProgramDesc& program, const PassContext& context) {
  BlockDesc& root = program.Root();
  std::unordered_set<std::string> needed;
  std::vector<std::unique_ptr<OpDesc>> ops = root.TakeOps(), kept;
  for (size_t i = ops.size(); i-- > 0;) {
    const OpDesc& op = *ops[i];
    const OpDef* def = context.ops.Find(op.type());
    bool live = !def || def->side_effect() || def->kind() != OpKind::kCompute || HasSubBlock(op);
    for (const Slot& slot : op.outputs()) {
      for (const std::string& name : slot.args) {
        live = live || needed.count(name) || (!IsEmptyName(name) && context.IsVisible(root, name));
      }
    }
    if (!live) continue;
    AddInputs(op, needed);
    AddSubBlockInputs(program, op, needed);
    kept.push_back(std::move(ops[i]));
  }
  std::reverse(kept.begin(), kept.end());
  root.SetOps(std::move(kept));
}

}  // namespace coracle
