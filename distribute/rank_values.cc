#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/rank_values.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/op_def.h>
#include <fmt/format.h>

#include <unordered_map>

namespace coracle::inline internal {
namespace {

[[noreturn]] void RefuseUpdate(const OpDesc& op, const std::string& name,
                               const std::string& origin) {
  Refuse(op, fmt::format("{} of the update would differ between the ranks, because it depends on "
                         "{}, which is not exchanged",
                         Quote(name), Quote(origin)));
}

class RankFollower {
 public:
  RankFollower(const ProgramDesc& main, const std::set<std::string>& exchanged, int ring_id,
               OpInserter* inserter)
      : main_(main), exchanged_(exchanged), ring_id_(ring_id), inserter_(*inserter) {}

  void Visit(const OpDesc& op) {
    if (!IsUpdate(op)) return VisitModel(op);
    std::string origin;  // of the first input that differs
    op.ForEachInput([&](const std::string& name) {
      if (origin_.count(name) && !AgreeBefore(op, name) && origin.empty())
        origin = origin_.at(name);
    });
    if (op.HasSubBlock()) return VisitBlocks(op);
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      if (origin.empty() || exchanged_.count(name) || AgreeAfter(op, name, slot)) {
        origin_.erase(name);
        return;
      }
      const VarDesc* var = op.block()->FindVarRecursive(name);
      if (var && var->persistable()) RefuseUpdate(op, name, origin);
      origin_[name] = origin;
    });
  }

 private:
  // The values of forward and backward differ.
  void VisitModel(const OpDesc& op) {
    ForEachOpRunBy(op, [&](const OpDesc& inner) {
      inner.ForEachOutput([&](const std::string& name) {
        if (!exchanged_.count(name)) origin_[name] = name;
        if (ChecksFinite(inner)) checks_.insert(name);
        if (JoinsChecks(inner, name)) finite_flags_.insert(name);
      });
    });
  }

  // Whether backward updates the flag that all gradients that enter error clips are finite.
  bool JoinsChecks(const OpDesc& op, const std::string& flag) const {
    return op.type() == "logical_and" && IsBackward(op) && op.Reads(flag) &&
           op.AnyInput([&](const std::string& name) { return checks_.count(name) > 0; });
  }

  // Conditions decide which blocks run, and how often.
  void VisitBlocks(const OpDesc& op) {
    for (const char* slot : {"Cond", "Condition"}) {
      for (const std::string& name : op.Input(slot))
        if (origin_.count(name)) RefuseUpdate(op, name, origin_.at(name));
    }
    for (const int block : op.SubBlocks())
      main_.Block(block).ForEachOp([&](const OpDesc& inner) { Visit(inner); });
  }

  // True on all ranks if it is true on all (c_allreduce_min), or on any (c_allreduce_max).
  auto Exchange(const std::string& flag, const char* reduction) const {
    return [this, flag, reduction](const Writer& w) {
      ExchangeInPlace(w, reduction, {flag}, ring_id_);
    };
  }

  // Before the op that reads it if backward writes it.
  bool AgreeBefore(const OpDesc& op, const std::string& name) {
    if (!finite_flags_.count(name)) return false;
    inserter_.Before(op, kOptimize, Exchange(name, "c_allreduce_min"));
    origin_.erase(name);
    return true;
  }

  bool AgreeAfter(const OpDesc& op, const std::string& name, const std::string& slot) {
    const bool any_infinite = slot == "FoundInfinite";
    if (!any_infinite && !ChecksFinite(op)) return false;
    inserter_.After(op, kOptimize,
                    Exchange(name, any_infinite ? "c_allreduce_max" : "c_allreduce_min"));
    return true;
  }

  const ProgramDesc& main_;
  const std::set<std::string>& exchanged_;
  const int ring_id_;
  OpInserter& inserter_;
  std::set<std::string> checks_;                         // whether one gradient is finite
  std::set<std::string> finite_flags_;                   // of error clips
  std::unordered_map<std::string, std::string> origin_;  // why a value differs
};

}  // namespace

bool ChecksFinite(const OpDesc& op) { return op.type() == "isfinite"; }

void AgreeOnFlags(const ProgramDesc& main, const std::set<std::string>& exchanged, int ring_id,
                  OpInserter* inserter) {
  RankFollower follower(main, exchanged, ring_id, inserter);
  main.Root().ForEachOp([&](const OpDesc& op) { follower.Visit(op); });
}

}  // namespace coracle::inline internal
