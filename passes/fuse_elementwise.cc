// Fuses connected elementwise ops on tensors of one shape into one op fused_elementwise, which runs
// them piece by piece in the cache.

#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/check/flow_types.h>
#include <coracle/passes/op_group.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

constexpr size_t kMostMembers = 64;
// Tensors of at most this many elements stay in the cache between ops, and fused_elementwise would
// not divide them.
constexpr int64_t kFewElements = 4096;

// The roles of a step's forward and backward ops, which may be in one group: a loss and its
// gradients are one sweep.
constexpr int kOfSteps = kBackward | kLoss | kNotSpecified;

// Values that the planner knows before the run. It computes results of known values only once, and
// shapes may depend on them.
class KnownValues {
 public:
  explicit KnownValues(const PassContext& context) : context_(context) {}

  bool Has(const std::string& name) const {
    return known_.count(name) > 0 || context_.FrozenValue(name);
  }
  bool KnowsInputsOf(const OpDesc& op) const {
    return !op.AnyInput([&](const std::string& name) { return !Has(name); });
  }
  void Note(const OpDesc& op, const OpSpec* spec) {
    const bool same_each_time = spec && spec->kind == OpKind::kCompute && !spec->random &&
                                !spec->side_effect && !spec->run_time_shape && !op.HasSubBlock();
    const bool known = same_each_time && (spec->shape_only || KnowsInputsOf(op));
    op.ForEachOutput([&](const std::string& name) {
      if (known)
        known_.insert(name);
      else
        known_.erase(name);
    });
  }

 private:
  const PassContext& context_;
  std::unordered_set<std::string> known_;
};

struct Group : OpGroup {
  Shape shape;
  bool open = true;
};

bool IsSmall(const Shape& shape) { return shape.IsKnown() && shape.numel() <= kFewElements; }
bool IsDense(const VarMeta* meta) {
  return meta && meta->type == VarType::kLoDTensor && IsValid(meta->dtype) &&
         meta->dtype != DType::kString;
}

// Finds the groups: visits the ops in order and keeps those groups open that may still be delayed.
class GroupFinder {
 public:
  GroupFinder(BlockDesc& root, const PassContext& context)
      : root_(root), context_(context), types_(root), known_(context) {}

  std::vector<Group> Run() {
    for (size_t i = 0; i < root_.NumOps(); ++i) Visit(root_.op(i), i);
    std::erase_if(groups_, [](const Group& group) { return group.members.size() < 2; });
    return std::move(groups_);
  }

 private:
  using Names = std::vector<std::string>;

  void Visit(const OpDesc& op, size_t position) {
    const OpSpec* spec = context_.ops.Find(op.type());
    Names reads, writes;
    ForEachRunBy(root_.program(), op, [&](const OpDesc& user) {
      user.ForEachInput([&](const std::string& name) { reads.push_back(name); });
      user.ForEachOutput([&](const std::string& name) { writes.push_back(name); });
    });
    for (const std::string& name : writes) {
      CloseAll(readers_[name]);
      CloseAll(writers_[name]);
    }
    const bool infers = spec && !op.HasSubBlock() && types_.Infer(*spec, op);
    const bool joins = infers && CanBeFused(*spec, op);
    std::vector<size_t> sources;  // groups whose results it reads
    const Shape shape = joins ? types_.Find(writes[0])->shape : Shape();
    size_t members = 1;
    for (const std::string& name : reads) {
      for (const size_t writer : writers_[name]) {
        const size_t g = Find(writer);
        if (!groups_[g].open || std::find(sources.begin(), sources.end(), g) != sources.end())
          continue;
        const Group& group = groups_[g];
        const bool fits =
            joins && group.shape == shape && members + group.members.size() <= kMostMembers;
        if (fits) {
          members += group.members.size();
          sources.push_back(g);
        } else {
          groups_[g].open = false;
        }
      }
    }
    if (joins) Join(op, position, shape, sources);
    known_.Note(op, spec);
    for (const std::string& name : writes) {
      if (infers)
        dense_.insert(name);
      else
        dense_.erase(name);
    }
  }

  bool CanBeFused(const OpSpec& spec, const OpDesc& op) const {
    if (!spec.elementwise || !IsFunction(spec) || spec.makes_lod || !spec.lod_axis.empty() ||
        spec.NumItems(op) != 1)
      return false;
    // Its tables are no operands that could be cut into pieces.
    if (!spec.rows.tables.empty()) return false;
    if (HasRole(op, ~kOfSteps) || known_.KnowsInputsOf(op)) return false;
    const Shape* shape = nullptr;
    const bool unsuitable = op.AnyOutput([&](const std::string& name) {
      const VarMeta* meta = types_.Find(name);
      const VarDesc* var = root_.FindVar(name);
      if (!var || var->persistable() || !IsDense(meta) || context_.feeds.count(name) ||
          root_.Uses(name).writers.size() != 1 || op.Reads(name))
        return true;
      if (shape && !(*shape == meta->shape)) return true;
      shape = &meta->shape;
      return false;
    });
    if (unsuitable || !shape || IsSmall(*shape)) return false;
    const bool odd_input = op.AnyInput([&](const std::string& name, const std::string& slot) {
      if (!IsDense(types_.Find(name))) return true;
      // A sub-block or a scope may hold another value than is declared, and this op would
      // accept it.
      const SlotDef* def = spec.FindInput(slot);
      return def && !def->takes.empty() && dense_.count(name) == 0 &&
             context_.feeds.count(name) == 0;
    });
    return !odd_input && LodIsClear(spec, op, shape->rank());
  }

  // Whether LoD passes in the same way in the op and in the whole group: between variables with the
  // same number of rows.
  bool LodIsClear(const OpSpec& spec, const OpDesc& op, int rank) const {
    bool clear = true;
    ForEachPosition(op.outputs(), [&](const std::string& name, const std::string& slot, size_t i) {
      const std::string* source = IsEmptyName(name) ? nullptr : spec.LodSource(op, slot, i);
      if (source) clear &= types_.Find(*source)->shape.rank() == rank;
    });
    return clear;
  }

  void Join(const OpDesc& op, size_t position, const Shape& shape,
            const std::vector<size_t>& sources) {
    size_t g = groups_.size();
    if (sources.empty()) {
      groups_.emplace_back();
      groups_[g].shape = shape;
      merged_.push_back(g);
    } else {
      g = *std::max_element(sources.begin(), sources.end(), [&](size_t a, size_t b) {
        return groups_[a].members.size() < groups_[b].members.size();
      });
      for (size_t other : sources) {
        if (other != g) Merge(other, g);
      }
    }
    Group& group = groups_[g];
    group.members.push_back(position);
    op.ForEachInput([&](const std::string& name) {
      group.AddInput({name, *types_.Find(name)});
      readers_[name].push_back(g);
    });
    op.ForEachOutput([&](const std::string& name) {
      group.outputs.push_back({name, *types_.Find(name)});
      writers_[name].push_back(g);
    });
  }

  // Neither group reads what the other writes; otherwise it would have been closed or merged.
  void Merge(size_t from, size_t into) {
    Group &a = groups_[from], &b = groups_[into];
    b.members.insert(b.members.end(), a.members.begin(), a.members.end());
    std::sort(b.members.begin(), b.members.end());
    for (const GroupVar& var : a.inputs) b.AddInput(var);
    b.outputs.insert(b.outputs.end(), a.outputs.begin(), a.outputs.end());
    a.members.clear();
    a.open = false;
    merged_[from] = into;
  }
  size_t Find(size_t g) const {
    while (merged_[g] != g) g = merged_[g];
    return g;
  }

  void CloseAll(std::vector<size_t>& groups) {
    for (size_t g : groups) groups_[Find(g)].open = false;
    groups.clear();
  }

  BlockDesc& root_;
  const PassContext& context_;
  FlowTypes types_;
  KnownValues known_;
  std::unordered_set<std::string> dense_;  // written by ops that do not run blocks
  std::vector<Group> groups_;
  std::vector<size_t> merged_;  // by group: the group itself, or the one it was merged into
  std::unordered_map<std::string, std::vector<size_t>> readers_, writers_;  // groups, by variable
};

}  // namespace

void FuseElementwise(ProgramDesc& program, const PassContext& context) {
  const std::vector<Group> found = GroupFinder(program.Root(), context).Run();
  ReplaceGroups(program, context, "fused_elementwise", true, {found.begin(), found.end()});
}

}  // namespace coracle::inline internal
