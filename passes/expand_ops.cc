#include <coracle/framework/op/check/flow_types.h>
#include <coracle/framework/op/expansion.h>
#include <coracle/passes/pass.h>
#include <coracle/passes/remarks.h>

#include <algorithm>
#include <map>
#include <utility>

namespace coracle::inline internal {
namespace {

// The expansions of the block's ops, by position.
std::map<size_t, ProgramDesc> ExpansionsOf(BlockDesc& block, const OpRegistry& ops) {
  std::map<size_t, ProgramDesc> expansions;
  FlowTypes types(block);
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    const OpSpec* spec = ops.Find(op.type());
    if (!spec) continue;
    if (spec->Expands()) {
      const std::string prefix = op.FirstOutput() + ".";
      expansions.emplace(i, ExpandOp(*spec, op, ops, types, [&](const std::string& hint) {
                           return block.program().UniqueName(prefix + hint);
                         }));
    }
    types.Infer(*spec, op);
  }
  return expansions;
}

// Removes the intermediate outputs that only gradients of the ops would read.
void RemoveUnread(BlockDesc& expansion, const OpDesc& given, const OpRegistry& ops) {
  for (size_t i = 0; i < expansion.NumOps(); ++i) {
    OpDesc& op = expansion.op(i);
    for (const SlotDef& slot : ops.Get(op.type()).outputs) {
      const std::vector<std::string>& names = op.Output(slot.name);
      const bool needed = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return given.Writes(name) || !expansion.Uses(name).readers.empty();
      });
      if (slot.intermediate && !needed && !names.empty()) op.SetOutput(slot.name, {});
    }
  }
}

bool ExpandBlock(BlockDesc& block, const OpRegistry& ops, bool trains) {
  const auto expands = [&](const OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    return spec && spec->Expands();
  };
  if (!AnyOp(block, expands)) return false;
  std::map<size_t, ProgramDesc> expansions = ExpansionsOf(block, ops);
  std::vector<std::unique_ptr<OpDesc>> old = block.ReleaseOps(), made;
  for (size_t i = 0; i < old.size(); ++i) {
    const auto found = expansions.find(i);
    if (found == expansions.end()) {
      made.push_back(std::move(old[i]));
      continue;
    }
    BlockDesc& expansion = found->second.Root();
    if (!trains) RemoveUnread(expansion, *old[i], ops);
    for (size_t v = 0; v < expansion.NumVars(); ++v) {
      const VarDesc& var = expansion.var(v);
      const bool used = !std::as_const(expansion).Uses(var.name()).writers.empty();
      if (used && !block.FindVarRecursive(var.name())) block.Var(var.name()).SetMeta(var.meta());
    }
    for (std::unique_ptr<OpDesc>& op : expansion.ReleaseOps()) {
      CopyRemarks(*old[i], *op);
      made.push_back(std::move(op));
    }
  }
  block.SetOps(std::move(made));
  return true;
}

}  // namespace

bool ExpandOps(ProgramDesc& program, const OpRegistry& ops, bool trains) {
  bool any = false;
  for (int b = 0; b < program.NumBlocks(); ++b) any |= ExpandBlock(program.Block(b), ops, trains);
  return any;
}

}  // namespace coracle::inline internal
