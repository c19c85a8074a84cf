#include <coracle/distribute/rank_values.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/op_spec.h>
#include <fmt/format.h>

#include <unordered_map>

namespace coracle {
namespace {

bool IsUpdate(const OpDesc& op) { return (RoleOf(op) & (kOptimize | kLRSched)) != 0; }

class Follower {
 public:
  Follower(const ProgramDesc& main, const std::set<std::string>& exchanged)
      : main_(main), exchanged_(exchanged) {}

  std::vector<RankFlag> Run() {
    main_.Root().ForEachOp([&](const OpDesc& op) { Visit(op); });
    return std::move(flags_);
  }

 private:
  // A value of the rank alone, and where it comes from.
  const std::string* OriginOf(const std::string& name) const {
    auto it = origin_.find(name);
    return it == origin_.end() ? nullptr : &it->second;
  }

  void Visit(const OpDesc& op) {
    if (!IsUpdate(op)) return VisitModel(op);
    const std::string* origin = nullptr;
    op.ForEachInput([&](const std::string& name) {
      const std::string* found = OriginOf(name);
      if (!found || AgreeBefore(op, name)) return;
      if (!origin) origin = found;
    });
    if (op.HasSubBlock()) return VisitBlocks(op);
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      if (!origin || exchanged_.count(name) || AgreeBehind(op, name, slot)) {
        origin_.erase(name);
        return;
      }
      origin_[name] = *origin;
      RequireNotKept(op, name, *origin);
    });
  }

  // Forward and backward.
  void VisitModel(const OpDesc& op) {
    const auto visit = [&](const OpDesc& inner) {
      inner.ForEachOutput([&](const std::string& name) {
        if (!exchanged_.count(name)) origin_[name] = name;
      });
    };
    visit(op);
    for (const BlockDesc* block : main_.BlocksRunBy(op)) block->ForEachOp(visit);
  }

  // Which block runs, and how often, depends on the conditions.
  void VisitBlocks(const OpDesc& op) {
    for (const char* slot : {"Cond", "Condition"}) {
      for (const std::string& name : op.Input(slot)) {
        const std::string* found = OriginOf(name);
        if (found) Refuse(op, name, *found);
      }
    }
    for (const BlockDesc* block : main_.BlocksRunBy(op))
      block->ForEachOp([&](const OpDesc& inner) { Visit(inner); });
  }

  const VarDesc* VarOf(const OpDesc& op, const std::string& name) const {
    return op.block()->FindVarRecursive(name);
  }
  bool IsFlag(const OpDesc& op, const std::string& name) const {
    const VarDesc* var = VarOf(op, name);
    return var && var->dtype() == DType::kBool;
  }

  // What backward found of the gradients that enter error clips.
  bool AgreeBefore(const OpDesc& op, const std::string& name) {
    if (!name.starts_with("error_clip_finite") || !IsFlag(op, name)) return false;
    flags_.push_back({&op, false, name, "c_allreduce_min"});
    origin_.erase(name);
    return true;
  }
  bool AgreeBehind(const OpDesc& op, const std::string& name, const std::string& slot) {
    if (!IsFlag(op, name)) return false;
    if (slot == "FoundInfinite")
      flags_.push_back({&op, true, name, "c_allreduce_max"});
    else if (op.type().starts_with("isfinite"))
      flags_.push_back({&op, true, name, "c_allreduce_min"});
    else
      return false;
    return true;
  }

  void RequireNotKept(const OpDesc& op, const std::string& name, const std::string& origin) const {
    const VarDesc* var = VarOf(op, name);
    if (var && var->persistable()) Refuse(op, name, origin);
  }
  [[noreturn]] static void Refuse(const OpDesc& op, const std::string& name,
                                  const std::string& origin) {
    ThrowInvalid(fmt::format("distribute: {} of the update would differ from rank to rank, since "
                             "it depends on {}, which is not exchanged",
                             Quote(name), Quote(origin)),
                 "  " + Locate(op));
  }

  const ProgramDesc& main_;
  const std::set<std::string>& exchanged_;
  std::unordered_map<std::string, std::string> origin_;
  std::vector<RankFlag> flags_;
};

}  // namespace

std::vector<RankFlag> FindRankFlags(const ProgramDesc& main,
                                    const std::set<std::string>& exchanged) {
  return Follower(main, exchanged).Run();
}

}  // namespace coracle
