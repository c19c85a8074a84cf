#include <coracle/framework/ir/role.h>
#include <coracle/passes/passes.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

constexpr int kStart = -1;  // before the first op

struct OpUses {
  std::vector<std::string> reads, writes;  // includes the uses in the blocks that the op runs
  bool may_move = false;
  int follows = kStart;  // the last op that this op must follow and that does not move
};

class UpdateMover {
 public:
  UpdateMover(ProgramDesc& program, const PassContext& context)
      : block_(program.Root()), context_(context) {}

  void Run() {
    const size_t count = block_.NumOps();
    for (size_t i = 0; i < count; ++i) Visit(block_.op(i), static_cast<int>(i));
    if (!ChooseMoves()) return;
    std::vector<std::vector<size_t>> followers(count + 1);  // for the start, then for each op
    for (size_t i = 0; i < count; ++i) {
      if (moves_[i]) followers[static_cast<size_t>(ops_[i].follows + 1)].push_back(i);
    }
    std::vector<std::unique_ptr<OpDesc>> ops = block_.ReleaseOps(), ordered;
    ordered.reserve(count);
    for (size_t place = 0; place <= count; ++place) {
      if (place > 0 && !moves_[place - 1]) ordered.push_back(std::move(ops[place - 1]));
      for (size_t follower : followers[place]) ordered.push_back(std::move(ops[follower]));
    }
    block_.SetOps(std::move(ordered));
  }

 private:
  // Finds the op that `op` must follow if all earlier ops that may move do move.
  void Visit(const OpDesc& op, int index) {
    OpUses& uses = ops_.emplace_back();
    ForEachRunBy(block_.program(), op, [&](const OpDesc& user) {
      user.ForEachInput([&](const std::string& name) { uses.reads.push_back(name); });
      user.ForEachOutput([&](const std::string& name) { uses.writes.push_back(name); });
    });

    const OpSpec* spec = context_.ops.Find(op.type());
    const bool computes = spec && spec->kind == OpKind::kCompute && !spec->side_effect;
    uses.may_move = computes && !spec->run_time_shape && !op.HasSubBlock() && IsUpdate(op);
    uses.follows = index;
    if (uses.may_move) {
      uses.follows = barrier_;
      for (const std::string& name : uses.reads) ComeAfter(written_, name, &uses);
      for (const std::string& name : uses.writes) {
        ComeAfter(written_, name, &uses);
        ComeAfter(read_, name, &uses);
      }
    } else if (!computes) {
      barrier_ = index;
    }
    if (!IsUpdate(op)) last_of_backward_ = index;
    for (const std::string& name : uses.reads) Note(&read_, name, uses.follows);
    for (const std::string& name : uses.writes) Note(&written_, name, uses.follows);
  }

  using Places = std::unordered_map<std::string, int>;
  static void ComeAfter(const Places& places, const std::string& name, OpUses* uses) {
    if (auto it = places.find(name); it != places.end())
      uses->follows = std::max(uses->follows, it->second);
  }
  static void Note(Places* places, const std::string& name, int place) {
    int& last = places->try_emplace(name, place).first->second;
    last = std::max(last, place);
  }

  // Chooses the updates that move forward from the end of the step, and the ops that must move with
  // them. OpUses::follows assumes that all ops that may move do move. That holds here: if an update
  // moves, every earlier op that it needs and that may move moves, too.
  bool ChooseMoves() {
    moves_.assign(ops_.size(), false);
    bool any = false;
    std::unordered_set<std::string> reads, writes;
    for (size_t i = ops_.size(); i-- > 0;) {
      const OpUses& uses = ops_[i];
      if (!uses.may_move) continue;
      const auto is_in = [](const std::unordered_set<std::string>& names) {
        return [&names](const std::string& name) { return names.count(name) > 0; };
      };
      const bool wanted = uses.follows < last_of_backward_ && ChangesState(uses);
      if (!wanted && std::none_of(uses.writes.begin(), uses.writes.end(), is_in(reads)) &&
          std::none_of(uses.writes.begin(), uses.writes.end(), is_in(writes)) &&
          std::none_of(uses.reads.begin(), uses.reads.end(), is_in(writes)))
        continue;
      moves_[i] = any = true;
      reads.insert(uses.reads.begin(), uses.reads.end());
      writes.insert(uses.writes.begin(), uses.writes.end());
    }
    return any;
  }

  bool ChangesState(const OpUses& uses) const {
    bool reads_temporary = false, updates = false;
    for (const std::string& name : uses.reads) {
      if (!IsPersistable(name)) {
        reads_temporary = true;
      } else if (std::find(uses.writes.begin(), uses.writes.end(), name) != uses.writes.end()) {
        updates = true;
      }
    }
    return reads_temporary && updates;
  }
  bool IsPersistable(const std::string& name) const {
    const VarDesc* var = block_.FindVarRecursive(name);
    return var && var->persistable();
  }

  BlockDesc& block_;
  const PassContext& context_;
  std::vector<OpUses> ops_;
  // By variable: the last op that does not move, at or after which it is read or written.
  Places read_, written_;
  int barrier_ = kStart, last_of_backward_ = kStart;
  std::vector<bool> moves_;
};

}  // namespace

void UpdateEarly(ProgramDesc& program, const PassContext& context) {
  if (AnyOp(program.Root(), IsUpdate)) UpdateMover(program, context).Run();
}

}  // namespace coracle::inline internal
