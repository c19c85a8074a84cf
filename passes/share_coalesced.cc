#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/pass.h>
#include <coracle/passes/share_coalesced.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

constexpr const char* kCoalesce = "coalesce_tensor";

// One coalesce_tensor whose variables share memory. At each position, the whole, all parts or both
// have the latest values.
struct Group {
  const OpDesc* maker = nullptr;
  std::string whole;
  std::vector<std::string> parts;
  bool whole_is_new = true, parts_are_new = true;
};

bool Waits(const OpDesc& op) {
  static const std::unordered_set<std::string> types = {"c_sync_comm_stream", "c_sync_calc_stream",
                                                        "c_wait_comm", "c_wait_compute"};
  return types.count(op.type()) > 0 && op.Input("X") == op.Output("Out");
}

class BlockSharer {
 public:
  BlockSharer(BlockDesc& block, const std::unordered_map<std::string, int>& users) : block_(block) {
    block.ForEachOp([&](const OpDesc& op) {
      // Without FusedOutput or Output, nothing is shared. A whole that no other op uses only
      // reserves memory.
      if (op.type() != kCoalesce || !op.HasOutput("FusedOutput") || !op.HasOutput("Output")) return;
      if (users.at(op.Output("FusedOutput")[0]) > 1) makers_.insert(&op);
    });
  }

  void Run() {
    if (makers_.empty()) return;
    for (auto& op : block_.ReleaseOps()) {
      if (Waits(*op)) WaitForWhole(*op);
      for (const auto& [group, use] : UsesOf(*op)) Prepare(groups_[group], *op, use);
      if (makers_.count(op.get())) Begin(*op);
      ops_.push_back(std::move(op));
    }
    for (Group& group : groups_) {
      Join(group);
      Divide(group);
    }
    block_.SetOps(std::move(ops_));
  }

 private:
  struct Use {
    bool reads_whole = false, writes_whole = false, reads_part = false, writes_part = false;
  };

  // The uses of each group by the op and by the blocks that it runs.
  std::map<size_t, Use> UsesOf(const OpDesc& op) const {
    std::map<size_t, Use> uses;
    const auto note = [&](const std::string& name, bool Use::*of_whole, bool Use::*of_part) {
      if (const auto it = group_of_.find(name); it != group_of_.end())
        uses[it->second].*(groups_[it->second].whole == name ? of_whole : of_part) = true;
    };
    ForEachRunBy(block_.program(), op, [&](const OpDesc& user) {
      user.ForEachInput(
          [&](const std::string& name) { note(name, &Use::reads_whole, &Use::reads_part); });
      user.ForEachOutput(
          [&](const std::string& name) { note(name, &Use::writes_whole, &Use::writes_part); });
    });
    return uses;
  }

  void Begin(const OpDesc& op) {
    Group group{&op, op.Output("FusedOutput")[0], op.Output("Output")};
    std::erase_if(group.parts, [](const std::string& name) { return IsEmptyName(name); });
    bool distinct = group_of_.emplace(group.whole, groups_.size()).second;
    for (const std::string& part : group.parts)
      distinct &= group_of_.emplace(part, groups_.size()).second;
    if (!distinct) Refuse(op, "it shares variables with another one");
    groups_.push_back(std::move(group));
  }

  // A wait ends the exchange of the memory, under whichever name: makes it wait for the
  // latest value.
  void WaitForWhole(OpDesc& op) const {
    std::vector<std::string> names;
    for (const std::string& name : op.Input("X")) {
      const auto found = group_of_.find(name);
      const bool stale = found != group_of_.end() && !groups_[found->second].parts_are_new;
      const std::string& newest = stale ? groups_[found->second].whole : name;
      if (std::find(names.begin(), names.end(), newest) == names.end()) names.push_back(newest);
    }
    op.SetInput("X", names);
    op.SetOutput("Out", names);
  }

  void Prepare(Group& group, const OpDesc& op, const Use& use) {
    const bool whole = use.reads_whole || use.writes_whole;
    const bool part = use.reads_part || use.writes_part;
    const bool writes = use.writes_whole || use.writes_part;
    if ((use.writes_whole && use.writes_part) || (op.HasSubBlock() && whole && part && writes))
      Refuse(*group.maker, "one op uses its FusedOutput and its Output, and writes to them");
    // A block may not run, and then the whole must have its previous value.
    if (use.reads_whole || (use.writes_whole && op.HasSubBlock())) Join(group);
    if (part) Divide(group);
    if (use.writes_whole) group.whole_is_new = true, group.parts_are_new = false;
    if (use.writes_part) group.parts_are_new = true, group.whole_is_new = false;
  }

  void Join(Group& group) {
    if (group.whole_is_new) return;
    AttrList attrs = Attrs(group);
    attrs.push_back({"dtype", group.maker->GetAttr<int32_t>("dtype", 0)});
    attrs.push_back({"copy_data", true});
    ops_.push_back(std::make_unique<OpDesc>(kCoalesce, SlotList{{"Input", group.parts}},
                                            SlotList{{"FusedOutput", {group.whole}}}, attrs));
    AddOrigins(*group.maker, *ops_.back());
    group.whole_is_new = true;
  }
  void Divide(Group& group) {
    if (group.parts_are_new) return;
    ops_.push_back(std::make_unique<OpDesc>("divide_coalesced",
                                            SlotList{{"X", {group.whole}}, {"Like", group.parts}},
                                            SlotList{{"Out", group.parts}}, Attrs(group)));
    AddOrigins(*group.maker, *ops_.back());
    group.parts_are_new = true;
  }
  static AttrList Attrs(const Group& group) {
    return {{"use_align", group.maker->GetAttr<bool>("use_align", true)},
            {"align_size", group.maker->GetAttr<int32_t>("align_size", -1)},
            {kOpRoleAttr, int32_t{group.maker->role()}}};
  }

  [[noreturn]] static void Refuse(const OpDesc& op, const std::string& reason) {
    ThrowInvalid(
        fmt::format("coalesce_tensor of {}: {}, so the order of the writes to their shared "
                    "memory is unknown",
                    Quote(op.Output("FusedOutput")[0]), reason));
  }

  BlockDesc& block_;
  std::unordered_set<const OpDesc*> makers_;
  std::vector<Group> groups_;
  std::unordered_map<std::string, size_t> group_of_;  // by variable
  std::vector<std::unique_ptr<OpDesc>> ops_;
};

// If an op outside the block uses the whole, it is unknown whether the coalesce_tensor has run.
// Throws in that case.
void RequireUsedInside(const ProgramDesc& program) {
  std::unordered_map<std::string, const BlockDesc*> home;
  program.ForEachOp([&](const OpDesc& op) {
    if (op.type() == kCoalesce && op.HasOutput("FusedOutput"))
      home.emplace(op.Output("FusedOutput")[0], op.block());
  });
  program.ForEachOp([&](const OpDesc& user) {
    const auto check = [&](const std::string& name) {
      const auto found = home.find(name);
      if (found == home.end()) return;
      const BlockDesc* block = user.block();
      while (block && block != found->second) block = block->parent();
      if (block) return;
      ThrowInvalid(fmt::format("coalesce_tensor of {}: an op outside its block uses it, so it is "
                               "unknown whether the memory is shared",
                               Quote(name)),
                   "  " + Locate(user));
    };
    user.ForEachInput(check);
    user.ForEachOutput(check);
  });
}

}  // namespace

void ShareCoalesced(ProgramDesc& program, const std::vector<std::string>& fetches) {
  bool any = false;
  program.ForEachOp([&](const OpDesc& op) { any |= op.type() == kCoalesce; });
  if (!any) return;
  RequireUsedInside(program);
  std::unordered_map<std::string, int> users;
  const auto count = [&](const std::string& name) { ++users[name]; };
  program.ForEachOp([&](const OpDesc& op) {
    op.ForEachInput(count);
    op.ForEachOutput(count);
    op.ForEachOutput([&](const std::string& name) {
      if (const VarDesc* var = op.block()->FindVarRecursive(name))
        users[name] += var->persistable();
    });
  });
  std::for_each(fetches.begin(), fetches.end(), count);
  for (int b = 0; b < program.NumBlocks(); ++b) BlockSharer(program.Block(b), users).Run();
}

}  // namespace coracle::inline internal
