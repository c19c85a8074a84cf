#include <coracle/passes/op_group.h>
#include <coracle/passes/remarks.h>

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>

namespace coracle::inline internal {

const GroupVar* OpGroup::FindOutput(const std::string& name) const {
  const auto it = std::find_if(outputs.begin(), outputs.end(),
                               [&](const GroupVar& var) { return var.name == name; });
  return it == outputs.end() ? nullptr : &*it;
}

void OpGroup::AddInput(const GroupVar& var) {
  const bool known = FindOutput(var.name) ||
                     std::any_of(inputs.begin(), inputs.end(),
                                 [&](const GroupVar& input) { return input.name == var.name; });
  if (!known) inputs.push_back(var);
}

namespace {

// Makes the op of a group and the block with its ops.
class GroupWriter {
 public:
  GroupWriter(ProgramDesc& program, const PassContext& context, std::string type, bool in_place)
      : program_(program),
        root_(program.Root()),
        context_(context),
        type_(std::move(type)),
        in_place_(in_place) {}

  // Returns nullptr if the results of the group are not needed.
  std::unique_ptr<OpDesc> Write(const OpGroup& group) {
    members_.clear();
    inner_.clear();
    for (size_t member : group.members) members_.insert(&root_.op(member));
    std::vector<GroupVar> results = group.outputs;
    std::erase_if(results, [&](const GroupVar& var) { return !IsNeeded(var.name); });
    if (results.empty()) return nullptr;
    BlockDesc& block = program_.AppendBlock(root_);
    const std::vector<GroupVar> arguments =
        in_place_ ? Paired(group.inputs, results) : group.inputs;
    for (const auto* vars : {&arguments, &group.outputs}) {
      for (const GroupVar& var : *vars) Declare(block, var);
    }
    for (size_t member : group.members) AppendInner(block, root_.op(member));
    auto op = std::make_unique<OpDesc>(
        type_, SlotList{{"X", NamesOf(arguments)}}, SlotList{{"Out", NamesOf(results)}},
        AttrList{{"sub_block", BlockRef{block.idx()}},
                 {"arguments", InnerNames(arguments)},
                 {"results", InnerNames(results)},
                 {"lod_from", LodSources(group, arguments, results)}});
    for (const NamedAttr& attr : group.attrs) op->SetAttr(attr.name, attr.value);
    CopyRemarks(root_.op(group.members.back()), *op);
    std::vector<const OpDesc*> members;
    for (size_t member : group.members) members.push_back(&root_.op(member));
    AddOriginsOfAll(members, *op);
    for (const GroupVar& var : group.outputs) {
      if (!IsNeeded(var.name)) gone_.insert(var.name);
    }
    return op;
  }

  // Variables that are no longer used.
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

  // Orders the inputs so that an output may use the memory of the X at its index: an input of its
  // size that no later op reads, if there is one.
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
    context_.NoteMade(inner, var.name);
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

  // Finds, through the ops of the group, the argument from which each result gets its LoD; -1
  // for none.
  std::vector<int32_t> LodSources(const OpGroup& group, const std::vector<GroupVar>& arguments,
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
  std::string type_;
  bool in_place_;
  std::unordered_set<const OpDesc*> members_;
  std::unordered_map<std::string, std::string> inner_;  // names in the group's block
  std::unordered_set<std::string> gone_;
};

}  // namespace

void ReplaceGroups(ProgramDesc& program, const PassContext& context, const std::string& type,
                   bool in_place, const std::vector<OpGroup>& groups) {
  if (groups.empty()) return;
  BlockDesc& root = program.Root();
  GroupWriter writer(program, context, type, in_place);
  std::map<size_t, std::unique_ptr<OpDesc>> made;  // by position of the last member
  std::unordered_set<size_t> fused;
  for (const OpGroup& group : groups) {
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

}  // namespace coracle::inline internal
