#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/forward_states.h>
#include <coracle/framework/ir/role.h>

#include <map>

namespace coracle::inline internal {
namespace {

// How forward ops use a persistable variable.
struct StateUse {
  bool written = false;          // by the rank's rows or draws
  bool carried = false;          // a step reads the value of the step before
  bool statistic = true;         // only updates of running statistics use it
  const OpDesc* last = nullptr;  // the last op of the root block that writes it
};

class StateUses {
 public:
  StateUses(const OpRegistry& ops, const PartValues& parts) : ops_(ops), parts_(parts) {}

  // `outer` is the op itself, or the op of the root block that runs its block.
  void Note(const OpDesc& op, const OpDesc& outer) {
    const OpSpec* spec = ops_.Find(op.type());
    if (!spec || op.HasSubBlock()) return;  // the ops of its block are noted instead
    op.ForEachInput([&](const std::string& name) {
      if (!IsPersistable(op, name)) return;
      StateUse& use = uses_[name];
      use.carried |= !use.written;
      bool updates = false;
      op.ForEachOutput([&](const std::string& out, const std::string& slot) {
        updates |= out == name && RuleOf(op, *spec, slot) == RowRule::kStatistic;
      });
      use.statistic &= updates;
    });
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      const RowRule rule = RuleOf(op, *spec, slot);
      if (!IsPersistable(op, name) || rule == RowRule::kSame || IsSame(name)) return;
      StateUse& use = uses_[name];
      // A block may not run, and some ops keep elements of their outputs.
      use.carried |= !use.written && (&op != &outer || Contains(spec->keeps_outputs, slot));
      use.written = true;
      use.statistic &= rule == RowRule::kStatistic;
      use.last = &outer;
    });
  }

  const std::map<std::string, StateUse>& uses() const { return uses_; }

 private:
  static bool IsPersistable(const OpDesc& op, const std::string& name) {
    const VarDesc* var = op.block()->FindVarRecursive(name);
    return var && var->persistable();
  }
  // Without reads that only a loss or metric lets rewrite.
  bool IsSame(const std::string& name) const {
    const Part& part = parts_.Of(name);
    return part.kind == PartKind::kSame && !part.drawn && parts_.ReadsOf(name).empty();
  }
  static RowRule RuleOf(const OpDesc& op, const OpSpec& spec, const std::string& slot) {
    return RowEffectOf({op, spec, slot}).rule;
  }

  const OpRegistry& ops_;
  const PartValues& parts_;
  std::map<std::string, StateUse> uses_;
};

}  // namespace

ForwardStates FindForwardStates(const ProgramDesc& main, const OpRegistry& ops,
                                const PartValues& parts) {
  StateUses uses(ops, parts);
  main.Root().ForEachOp([&](const OpDesc& outer) {
    if (IsForward(outer)) ForEachOpRunBy(outer, [&](const OpDesc& op) { uses.Note(op, outer); });
  });
  ForwardStates found;
  for (const auto& [name, use] : uses.uses()) {
    if (!use.written) continue;
    const VarDesc* var = main.Root().FindVar(name);
    const bool has_mean = var && var->type() == VarType::kLoDTensor && IsFloating(var->dtype()) &&
                          var->shape().IsKnown() && use.carried;
    if (!has_mean)
      found.own.push_back(name);
    else if (use.statistic)
      found.statistics.push_back(name);
    else
      found.states.push_back({name, use.last});
  }
  return found;
}

}  // namespace coracle::inline internal
