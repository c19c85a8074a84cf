#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/role.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/remarks.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace coracle::inline internal {
namespace {

// A group whose gradients take at least this memory, and this share of all, does not wait for
// more members.
constexpr double kLeastBytes = 1 << 20;
constexpr double kShare = 1.0 / 16;

// Ops of one kind that can run together, at the position of the last one.
struct Group {
  std::vector<size_t> members;
  double bytes = 0;
};

class Merger {
 public:
  Merger(BlockDesc& block, const OpRegistry& ops) : block_(block), ops_(ops) {}

  void Run() {
    std::vector<std::unique_ptr<OpDesc>> ops = block_.ReleaseOps();
    double all = 0;
    for (const auto& op : ops) all += KeyOf(*op).empty() ? 0 : BytesOf(*op);
    enough_ = std::max(kLeastBytes, all * kShare);
    for (size_t i = 0; i < ops.size(); ++i) Visit(*ops[i], i);
    std::vector<std::unique_ptr<OpDesc>> kept;
    std::vector<bool> gone(ops.size(), false);
    std::unordered_map<size_t, const Group*> at_last;
    for (const Group& group : groups_) {
      if (group.members.size() < 2) continue;
      at_last[group.members.back()] = &group;
      for (size_t member : group.members) gone[member] = true;
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      if (auto it = at_last.find(i); it != at_last.end()) Merge(*it->second, ops);
      if (!gone[i] || at_last.count(i)) kept.push_back(std::move(ops[i]));
    }
    block_.SetOps(std::move(kept));
  }

 private:
  // Closes the groups that cannot be delayed until after `op`, because it uses what they write or
  // writes what they use. Then `op` joins a group or opens one. It also opens one if its group is
  // already large enough and backward ops come between (see early_updates), so that the gradients
  // of that group need not wait for its own.
  void Visit(const OpDesc& op, size_t index) {
    // The op that runs a block need not name the variables of the ops inside.
    ForEachRunBy(block_.program(), op, [&](const OpDesc& each) { CloseUsersOf(each); });
    const std::string key = KeyOf(op);
    if (!IsUpdate(op)) last_of_backward_ = index;
    if (key.empty()) return;
    auto [open, added] = open_.try_emplace(key, groups_.size());
    if (!added) {
      const Group& group = groups_[open->second];
      added = group.bytes >= enough_ && group.members.back() < last_of_backward_;
      if (added) open->second = groups_.size();
    }
    if (added) groups_.emplace_back();
    Group& group = groups_[open->second];
    group.members.push_back(index);
    group.bytes += BytesOf(op);
    op.ForEachInput([&](const std::string& name) { readers_[name].push_back(key); });
    op.ForEachOutput([&](const std::string& name) { writers_[name].push_back(key); });
  }

  void CloseUsersOf(const OpDesc& op) {
    op.ForEachInput([&](const std::string& name) { CloseAll(writers_, name); });
    op.ForEachOutput([&](const std::string& name) {
      CloseAll(readers_, name);
      CloseAll(writers_, name);
    });
  }

  using Users = std::unordered_map<std::string, std::vector<std::string>>;
  void CloseAll(Users& users, const std::string& name) {
    auto it = users.find(name);
    if (it == users.end()) return;
    for (const std::string& key : it->second) open_.erase(key);
    users.erase(it);
  }

  // The properties that ops must share to be merged; "" if the op cannot be merged.
  std::string KeyOf(const OpDesc& op) const {
    const OpSpec* def = ops_.Find(op.type());
    if (!def || !def->multi_tensor || !HasRole(op, kOptimize) || def->NumItems(op) != 1) return "";
    std::string key = op.type();
    for (const SlotList* slots : {&op.inputs(), &op.outputs()}) {
      for (const Slot& slot : *slots) {
        if (slot.args.empty()) continue;
        if (slot.args.size() > 1 || IsEmptyName(slot.args[0])) return "";
        key += "|" + slot.name;
        if (def->IsShared(slot.name)) {
          key += "=" + slot.args[0];
          continue;
        }
        const VarDesc* var = block_.FindVarRecursive(slot.args[0]);
        if (!var || var->type() != VarType::kLoDTensor) return "";
        key += std::string(":") + ToString(var->dtype());
      }
    }
    for (const NamedAttr& attr : op.attrs()) {
      if (!IsBookkeepingAttr(attr.name)) key += "|" + attr.name + "=" + ToString(attr.value);
    }
    return key;
  }

  // The size of the largest variable that the op writes, if its shape is known.
  double BytesOf(const OpDesc& op) const {
    double bytes = 0;
    op.ForEachOutput([&](const std::string& name) {
      const VarDesc* var = block_.FindVarRecursive(name);
      if (!var || !IsValid(var->dtype()) || !var->shape().IsKnown() ||
          var->shape().HasTooManyElements())
        return;
      bytes = std::max(bytes, static_cast<double>(ByteSize(var->dtype(), var->shape())));
    });
    return bytes;
  }

  // Gives the variables of all members to the last one.
  void Merge(const Group& group, const std::vector<std::unique_ptr<OpDesc>>& ops) const {
    // All inputs are computed only at the position of the last member.
    OpDesc& last = *ops[group.members.back()];
    const OpSpec& def = ops_.Get(last.type());
    const OpDesc first = last;
    const auto all = [&](const std::string& slot, bool input) {
      std::vector<std::string> names;
      names.reserve(group.members.size());
      for (size_t member : group.members) {
        const OpDesc& op = member == group.members.back() ? first : *ops[member];
        names.push_back((input ? op.Input(slot) : op.Output(slot))[0]);
      }
      return names;
    };
    for (const Slot& slot : first.inputs()) {
      if (!slot.args.empty() && !def.IsShared(slot.name))
        last.SetInput(slot.name, all(slot.name, true));
    }
    for (const Slot& slot : first.outputs()) {
      if (!slot.args.empty()) last.SetOutput(slot.name, all(slot.name, false));
    }
    last.RemoveAttr(kOpRoleVarAttr);
    std::vector<const OpDesc*> members;
    for (size_t member : group.members) members.push_back(ops[member].get());
    AddOriginsOfAll(members, last);
  }

  BlockDesc& block_;
  const OpRegistry& ops_;
  std::vector<Group> groups_;
  std::unordered_map<std::string, size_t> open_;  // by key
  Users readers_, writers_;                       // keys of groups, by variable
  double enough_ = kLeastBytes;
  size_t last_of_backward_ = 0;
};

}  // namespace

void MergeUpdates(ProgramDesc& program, const PassContext& context) {
  for (int b = 0; b < program.NumBlocks(); ++b) Merger(program.Block(b), context.ops).Run();
}

}  // namespace coracle::inline internal
