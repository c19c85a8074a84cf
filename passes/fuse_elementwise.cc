// Connected elementwise ops on tensors of one shape become one op fused_elementwise, which runs
// them piece by piece in the cache.

#include <coracle/passes/flow_types.h>
#include <coracle/passes/pass.h>
#include <coracle/passes/remarks.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

constexpr size_t kMostMembers = 64;
// So few elements stay in the cache from op to op, and fused_elementwise would not cut them.
constexpr int64_t kFewElements = 4096;

// The roles of a step's forward and backward ops, which may stand in one group: a loss and its
// gradients are one sweep.
constexpr int kOfSteps = kBackward | kLoss | kNotSpecified;

int RoleOf(const OpDesc& op) {
  const Attribute* role = op.FindAttr(kOpRoleAttr);
  const auto* value = role ? std::get_if<int32_t>(role) : nullptr;
  return value ? *value : kForward;
}

// Values that the planner knows before the run: what it makes of them it computes once, and shapes
// may depend on it.
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

// A variable as an op of a group finds or leaves it.
struct GroupVar {
  std::string name;
  VarMeta meta;
};

struct Group {
  std::vector<size_t> members;  // positions, ascending
  Shape shape;
  bool open = true;
  // In the order of their first use.
  std::vector<GroupVar> inputs, outputs;

  const GroupVar* FindOutput(const std::string& name) const {
    const auto it = std::find_if(outputs.begin(), outputs.end(),
                                 [&](const GroupVar& var) { return var.name == name; });
    return it == outputs.end() ? nullptr : &*it;
  }
};

// Finds the groups: goes through the ops and keeps those groups open that may still be delayed.
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
    ListUses(op, &reads, &writes);
    for (const std::string& name : writes) {
      CloseAll(readers_[name]);
      CloseAll(writers_[name]);
    }
    const bool infers = spec && !op.HasSubBlock() && types_.Infer(*spec, op);
    const bool joins = infers && CanBeFused(*spec, op);
    std::vector<size_t> sources;  // of which it takes part
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

  // With what the op's blocks use.
  void ListUses(const OpDesc& op, Names* reads, Names* writes) const {
    const auto add = [&](const OpDesc& user) {
      user.ForEachInput([&](const std::string& name) { reads->push_back(name); });
      user.ForEachOutput([&](const std::string& name) { writes->push_back(name); });
    };
    add(op);
    if (!op.HasSubBlock()) return;
    for (const BlockDesc* inner : root_.program().BlocksRunBy(op)) inner->ForEachOp(add);
  }

  bool CanBeFused(const OpSpec& spec, const OpDesc& op) const {
    if (!spec.elementwise || spec.kind != OpKind::kCompute || spec.random || spec.side_effect ||
        spec.run_time_shape || spec.makes_lod || !spec.lod_axis.empty() ||
        !spec.keeps_outputs.empty() || spec.NumItems(op) != 1)
      return false;
    if ((RoleOf(op) & ~kOfSteps) != 0 || known_.KnowsInputsOf(op)) return false;
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
      // What a sub-block or a scope holds may be something else than is declared, which this op
      // would take.
      const SlotDef* def = spec.FindInput(slot);
      return def && !def->takes.empty() && dense_.count(name) == 0 &&
             context_.feeds.count(name) == 0;
    });
    return !odd_input && LodIsClear(spec, op, shape->rank());
  }
  static bool IsSmall(const Shape& shape) {
    return shape.IsKnown() && shape.numel() <= kFewElements;
  }
  static bool IsDense(const VarMeta* meta) {
    return meta && meta->type == VarType::kLoDTensor && IsValid(meta->dtype);
  }

  // LoD passes between variables with as many rows. That must be the same thing for the op and the
  // whole group.
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
      AddInput(group, {name, *types_.Find(name)});
      readers_[name].push_back(g);
    });
    op.ForEachOutput([&](const std::string& name) {
      group.outputs.push_back({name, *types_.Find(name)});
      writers_[name].push_back(g);
    });
  }

  static void AddInput(Group& group, const GroupVar& var) {
    const bool known = group.FindOutput(var.name) ||
                       std::any_of(group.inputs.begin(), group.inputs.end(),
                                   [&](const GroupVar& input) { return input.name == var.name; });
    if (!known) group.inputs.push_back(var);
  }

  // Neither reads what the other one writes, or it would have been closed or merged then.
  void Merge(size_t from, size_t into) {
    Group &a = groups_[from], &b = groups_[into];
    b.members.insert(b.members.end(), a.members.begin(), a.members.end());
    std::sort(b.members.begin(), b.members.end());
    for (const GroupVar& var : a.inputs) AddInput(b, var);
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
  std::unordered_set<std::string> dense_;  // written by ops that run no blocks
  std::vector<Group> groups_;
  std::vector<size_t> merged_;  // by group: itself, or the one that took it over
  std::unordered_map<std::string, std::vector<size_t>> readers_, writers_;  // groups, by variable
};

// Makes the op of a group, and the block with its ops.
class GroupWriter {
 public:
  GroupWriter(ProgramDesc& program, const PassContext& context)
      : program_(program), root_(program.Root()), context_(context) {}

  // nullptr where nobody needs what the group computes.
  std::unique_ptr<OpDesc> Write(const Group& group) {
    members_.clear();
    inner_.clear();
    for (size_t member : group.members) members_.insert(&root_.op(member));
    std::vector<GroupVar> results = group.outputs;
    std::erase_if(results, [&](const GroupVar& var) { return !IsNeeded(var.name); });
    if (results.empty()) return nullptr;
    BlockDesc& block = program_.AppendBlock(root_);
    const std::vector<GroupVar> arguments = Paired(group.inputs, results);
    for (const auto* vars : {&arguments, &group.outputs}) {
      for (const GroupVar& var : *vars) Declare(block, var);
    }
    for (size_t member : group.members) AppendInner(block, root_.op(member));
    auto op =
        std::make_unique<OpDesc>("fused_elementwise", SlotList{{"X", NamesOf(arguments)}},
                                 SlotList{{"Out", NamesOf(results)}},
                                 AttrList{{"sub_block", BlockRef{block.idx()}},
                                          {"arguments", InnerNames(arguments)},
                                          {"results", InnerNames(results)},
                                          {"lod_from", LodSources(group, arguments, results)}});
    CopyRemarks(root_.op(group.members.back()), *op);
    for (const GroupVar& var : group.outputs) {
      if (!IsNeeded(var.name)) gone_.insert(var.name);
    }
    return op;
  }

  // Variables that no op uses any more.
  const std::unordered_set<std::string>& gone() const { return gone_; }

 private:
  using Names = std::vector<std::string>;

  bool IsReadOutside(const std::string& name) const {
    const auto readers = root_.Uses(name).readers;
    return std::any_of(readers.begin(), readers.end(),
                       [&](const OpDesc* op) { return members_.count(op) == 0; });
  }
  bool IsNeeded(const std::string& name) const {
    return context_.IsVisible(root_, name) || IsReadOutside(name);
  }

  // Every Out may have the memory of the X at its place: one that nobody reads afterwards, if there
  // is one of its size.
  std::vector<GroupVar> Paired(std::vector<GroupVar> inputs,
                               const std::vector<GroupVar>& results) const {
    for (size_t i = 0; i < results.size() && i < inputs.size(); ++i) {
      const auto fits = [&](const GroupVar& var) {
        return var.meta.shape == results[i].meta.shape &&
               SizeOf(var.meta.dtype) == SizeOf(results[i].meta.dtype) && !IsNeeded(var.name) &&
               context_.feeds.count(var.name) == 0;
      };
      const auto first = inputs.begin() + static_cast<ptrdiff_t>(i);
      const auto found = std::find_if(first, inputs.end(), fits);
      if (found != inputs.end()) std::rotate(first, found, found + 1);
    }
    return inputs;
  }

  void Declare(BlockDesc& block, const GroupVar& var) {
    const std::string inner = program_.FreeName(var.name + "@FUSED");
    block.Var(inner).SetMeta(var.meta);
    inner_[var.name] = inner;
  }
  void AppendInner(BlockDesc& block, const OpDesc& op) const {
    OpDesc& copy = block.AppendOp(op);
    const auto inner = [&](const std::string& name) { return inner_.at(name); };
    copy.RenameInputs(inner);
    copy.RenameOutputs(inner);
  }

  static Names NamesOf(const std::vector<GroupVar>& vars) {
    Names names;
    for (const GroupVar& var : vars) names.push_back(var.name);
    return names;
  }
  Names InnerNames(const std::vector<GroupVar>& vars) const {
    Names names;
    for (const GroupVar& var : vars) names.push_back(inner_.at(var.name));
    return names;
  }

  // Through the ops of the group.
  std::vector<int32_t> LodSources(const Group& group, const std::vector<GroupVar>& arguments,
                                  const std::vector<GroupVar>& results) const {
    std::unordered_map<std::string, int32_t> source;
    for (size_t i = 0; i < arguments.size(); ++i)
      source[arguments[i].name] = static_cast<int32_t>(i);
    for (size_t member : group.members) {
      const OpDesc& op = root_.op(member);
      const OpSpec& spec = context_.ops.Get(op.type());
      ForEachPosition(op.outputs(),
                      [&](const std::string& name, const std::string& slot, size_t i) {
                        const std::string* from = spec.LodSource(op, slot, i);
                        if (!IsEmptyName(name)) source[name] = from ? source.at(*from) : -1;
                      });
    }
    std::vector<int32_t> places;
    for (const GroupVar& var : results) places.push_back(source.at(var.name));
    return places;
  }

  ProgramDesc& program_;
  BlockDesc& root_;
  const PassContext& context_;
  std::unordered_set<const OpDesc*> members_;
  std::unordered_map<std::string, std::string> inner_;  // names in the block
  std::unordered_set<std::string> gone_;
};

}  // namespace

void FuseElementwise(ProgramDesc& program, const PassContext& context) {
  BlockDesc& root = program.Root();
  const std::vector<Group> groups = GroupFinder(root, context).Run();
  if (groups.empty()) return;
  GroupWriter writer(program, context);
  std::map<size_t, std::unique_ptr<OpDesc>> made;  // by position of the last member
  std::unordered_set<size_t> fused;
  for (const Group& group : groups) {
    std::unique_ptr<OpDesc> op = writer.Write(group);
    if (!op) continue;
    made[group.members.back()] = std::move(op);
    fused.insert(group.members.begin(), group.members.end());
  }
  std::vector<std::unique_ptr<OpDesc>> ops = root.ReleaseOps(), kept;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (auto it = made.find(i); it != made.end())
      kept.push_back(std::move(it->second));
    else if (fused.count(i) == 0)
      kept.push_back(std::move(ops[i]));
  }
  root.SetOps(std::move(kept));
  root.RemoveVarsIf([&](const VarDesc& var) { return writer.gone().count(var.name()) > 0; });
}

}  // namespace coracle
