#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/forward_states.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/op_spec.h>
#include <coracle/passes/freeze.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <unordered_set>

namespace coracle {
namespace {

bool IsForward(const OpDesc& op) { return !HasRole(op, kOptimize | kLRSched | kBackward); }

// Those of batch_norm and its like: averages of what the rows give, which training does not use.
bool IsStatisticOf(const OpDesc& op, const std::string& name) {
  const auto has = [&](const char* slot) {
    const std::vector<std::string>& args = op.Output(slot);
    return std::find(args.begin(), args.end(), name) != args.end();
  };
  return has("MeanOut") || has("VarianceOut");
}

class Finder {
 public:
  Finder(const ProgramDesc& main, const OpRegistry& ops) : main_(main), ops_(ops) {}

  ForwardStates Run() {
    FindWritten();
    // A state that a later op makes depend on rows does so for the ops before it, in the next run.
    size_t before = 0;
    do {
      before = of_rank_.size();
      ForEachForward([&](const OpDesc&, const OpDesc& op) { Follow(op); });
    } while (of_rank_.size() > before);
    ForEachForward([&](const OpDesc& outer, const OpDesc& op) { Note(outer, op); });
    return Sorted();
  }

 private:
  struct Use {
    bool written = false, carried = false;
    bool statistic = true;  // and nothing else
    const OpDesc* last = nullptr;
  };

  // `visit` gets the op of the root block, and itself or an op that it runs.
  void ForEachForward(const std::function<void(const OpDesc& outer, const OpDesc& op)>& visit) {
    main_.Root().ForEachOp([&](const OpDesc& outer) {
      if (!IsForward(outer)) return;
      visit(outer, outer);
      for (const BlockDesc* block : main_.BlocksRunBy(outer))
        block->ForEachOp([&](const OpDesc& op) { visit(outer, op); });
    });
  }

  static const VarDesc* PersistableOf(const OpDesc& op, const std::string& name) {
    const VarDesc* var = op.block()->FindVarRecursive(name);
    return var && var->persistable() ? var : nullptr;
  }

  void FindWritten() {
    main_.ForEachOp([&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) { written_.insert(name); });
    });
  }

  // Feeds, readers, and the parts that a loop hands to its block, are written by no op.
  bool IsOfRank(const OpDesc& op, const std::string& name) const {
    if (of_rank_.count(name)) return true;
    const VarDesc* var = op.block()->FindVarRecursive(name);
    if (var && (var->type() == VarType::kFeedMinibatch || var->type() == VarType::kReader))
      return true;
    return !PersistableOf(op, name) && !written_.count(name);
  }

  // What the ops of its blocks use, an op that runs blocks only lists.
  bool IsListed(const OpDesc& op, const std::string& name) const {
    const auto is = [&](const std::string& used) { return used == name; };
    for (const BlockDesc* block : main_.BlocksRunBy(op)) {
      bool used = false;
      block->ForEachOp([&](const OpDesc& inner) {
        used |= !inner.HasSubBlock() && (inner.AnyInput(is) || inner.AnyOutput(is));
      });
      if (used) return true;
    }
    return false;
  }

  void Follow(const OpDesc& op) {
    const auto is_of_rank = [&](const std::string& name) { return IsOfRank(op, name); };
    const OpSpec* spec = ops_.Find(op.type());
    const bool all = !spec || spec->random || op.AnyInput(is_of_rank);
    op.ForEachOutput([&](const std::string& name) {
      if (all && !IsListed(op, name)) of_rank_.insert(name);
    });
    // Whether a block runs, and how often.
    for (const char* slot : {"Cond", "Condition"}) {
      const std::vector<std::string>& conditions = op.Input(slot);
      if (std::none_of(conditions.begin(), conditions.end(), is_of_rank)) continue;
      for (const BlockDesc* block : main_.BlocksRunBy(op)) {
        block->ForEachOp([&](const OpDesc& inner) {
          inner.ForEachOutput([&](const std::string& name) { of_rank_.insert(name); });
        });
      }
    }
  }

  // Whether the op may read what the output held before it.
  bool MayKeep(const OpDesc& op, const std::string& slot) const {
    const OpSpec* spec = ops_.Find(op.type());
    if (!spec) return true;
    const std::vector<std::string>& kept = spec->keeps_outputs;
    return std::find(kept.begin(), kept.end(), slot) != kept.end();
  }

  void Note(const OpDesc& outer, const OpDesc& op) {
    op.ForEachInput([&](const std::string& name) {
      if (!PersistableOf(op, name) || IsListed(op, name)) return;
      Use& use = uses_[name];
      use.carried |= !use.written;
      use.statistic &= IsStatisticOf(op, name);
    });
    // These write what they have read, or what all ranks have the same of.
    if (op.type() == "sync_batch_norm" || HasFixedStatistics(op)) return;
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      if (!PersistableOf(op, name) || !of_rank_.count(name) || IsListed(op, name)) return;
      Use& use = uses_[name];
      // A block may not run.
      use.carried |= !use.written && (&op != &outer || MayKeep(op, slot));
      use.written = true;
      use.statistic &= IsStatisticOf(op, name);
      use.last = &outer;
    });
  }

  ForwardStates Sorted() const {
    ForwardStates found;
    for (const auto& [name, use] : uses_) {
      if (!use.written) continue;
      const VarDesc* var = main_.Root().FindVar(name);
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

  const ProgramDesc& main_;
  const OpRegistry& ops_;
  std::unordered_set<std::string> written_;  // by any op
  std::unordered_set<std::string> of_rank_;  // depends on the rank's rows or draws
  std::map<std::string, Use> uses_;          // of persistable variables
};

}  // namespace

ForwardStates FindForwardStates(const ProgramDesc& main, const OpRegistry& ops) {
  return Finder(main, ops).Run();
}

}  // namespace coracle
