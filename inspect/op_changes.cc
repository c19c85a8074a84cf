#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/listing.h>
#include <coracle/framework/op/check/name_attrs.h>
#include <coracle/inspect/op_changes.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;

// Finds elements by name, also fast in long lists.
template <class T>
class ByName {
 public:
  explicit ByName(const std::vector<T>& list) : list_(list) {
    if (list.size() <= kShort) return;
    for (const T& element : list) index_.emplace(element.name, &element);
  }
  const T* Find(const std::string& name) const {
    if (list_.size() > kShort) {
      const auto found = index_.find(name);
      return found == index_.end() ? nullptr : found->second;
    }
    for (const T& element : list_) {
      if (element.name == name) return &element;
    }
    return nullptr;
  }

 private:
  static constexpr size_t kShort = 16;
  const std::vector<T>& list_;
  std::unordered_map<std::string_view, const T*> index_;
};

bool HasBlocks(const Attribute& value) {
  return TypeOf(value) == AttrType::kBlock || TypeOf(value) == AttrType::kBlocks;
}

bool ReadsVariables(const Attribute& value) {
  return std::holds_alternative<VarRef>(value) ||
         std::holds_alternative<std::vector<VarRef>>(value);
}

bool HoldsFloats(AttrType type) {
  return type == AttrType::kFloat || type == AttrType::kFloats || type == AttrType::kFloat64 ||
         type == AttrType::kFloat64s;
}

// Whether changes of the attr are ignored. Changes of the role, its variables and the device count.
bool IsIgnored(const std::string& attr) {
  return IsBookkeepingAttr(attr) && attr != kOpRoleAttr && attr != kOpRoleVarAttr &&
         attr != kOpDeviceAttr;
}

// The part of a long text from the position where it differs from another.
std::string PartFrom(const std::string& text, size_t at) {
  constexpr size_t kAround = 20;
  const size_t from = std::min(at < kAround ? 0 : at - kAround, text.size());
  return PrintableLine((from > 0 ? "... " : "") + text.substr(from, 3 * kAround) +
                       (from + 3 * kAround < text.size() ? " ..." : ""));
}

class OpComparer {
 public:
  OpComparer(const OpDesc& before, const OpDesc& after, const DiffSides& sides)
      : a_(before), b_(after), sides_(sides) {}

  std::vector<DiffChange> Run() {
    CompareSlots("input", a_.inputs(), b_.inputs());
    CompareSlots("output", a_.outputs(), b_.outputs());
    CompareAttrs();
    if (a_.is_target() != b_.is_target()) {
      const auto text = [](bool value) { return value ? "true" : "false"; };
      changes_.push_back({"attr", "is_target", text(a_.is_target()), text(b_.is_target())});
    }
    return std::move(changes_);
  }

 private:
  void CompareSlots(const char* what, const SlotList& before, const SlotList& after) {
    const ByName<Slot> in_before(before), in_after(after);
    for (const Slot& slot : before) {
      const Slot* other = in_after.Find(slot.name);
      CompareArgs(what, slot.name, slot.args, other ? other->args : Names());
    }
    for (const Slot& slot : after) {
      if (!in_before.Find(slot.name)) CompareArgs(what, slot.name, {}, slot.args);
    }
  }

  void CompareArgs(const std::string& what, const std::string& slot, Names before, Names after) {
    for (Names* names : {&before, &after}) {
      while (!names->empty() && IsEmptyName(names->back())) names->pop_back();
    }
    const size_t most = std::max(before.size(), after.size());
    if (most > 1 && before.size() != after.size()) {
      changes_.push_back({what, NameText(slot), NamesText(before), NamesText(after)});
      return;
    }
    before.resize(most);
    after.resize(most);
    for (size_t i = 0; i < most; ++i) {
      if (IsSameArg(what, before[i], after[i])) continue;
      const std::string place = most == 1 ? "" : fmt::format("[{}]", i);
      changes_.push_back({what, NameText(slot) + place, ArgText(before[i]), ArgText(after[i])});
    }
  }
  static std::string ArgText(const std::string& name) {
    return IsEmptyName(name) ? "none" : NameText(name);
  }
  bool IsSameArg(const std::string& what, const std::string& before,
                 const std::string& after) const {
    if (IsEmptyName(before) || IsEmptyName(after)) return IsEmptyName(before) && IsEmptyName(after);
    const NamePairs& names = sides_.names;
    // No op of `after` writes this variable in its place; the diff already lists its writer
    // as removed.
    if (before == after && names.AfterOf(names.Number(before)) < 0) return true;
    if (!sides_.IsSameName(before, after)) return false;
    return what == "input" || before == after ||
           names.IsRenaming(names.Number(before), names.Number(after)) ||
           (HoldsScopes(a_, before) && HoldsScopes(b_, after));
  }
  // Whether the op keeps the scopes of its block's runs in the variable. The builder numbers these
  // names, and only gradient ops of the same op read them.
  static bool HoldsScopes(const OpDesc& op, const std::string& name) {
    const VarDesc* var = op.block() ? op.block()->FindVarRecursive(name) : nullptr;
    return var && var->type() == VarType::kStepScopes;
  }

  void CompareAttrs() {
    const ByName<NamedAttr> in_before(a_.attrs()), in_after(b_.attrs());
    for (const NamedAttr& attr : a_.attrs()) {
      if (IsIgnored(attr.name)) continue;
      const NamedAttr* other = in_after.Find(attr.name);
      if (other ? !IsSame(attr, *other) : !IsDefaultAttr(sides_.ops, a_, attr))
        AddAttr(attr.name, &attr, other);
    }
    for (const NamedAttr& attr : b_.attrs()) {
      if (!IsIgnored(attr.name) && !in_before.Find(attr.name) &&
          !IsDefaultAttr(sides_.ops, b_, attr))
        AddAttr(attr.name, nullptr, &attr);
    }
  }
  void AddAttr(const std::string& name, const NamedAttr* before, const NamedAttr* after) {
    const auto text = [](const NamedAttr* attr) { return attr ? AttrText(attr->value) : "none"; };
    DiffChange change{"attr", NameText(name), text(before), text(after)};
    if (before && after && change.before == change.after) {
      const std::string x = ToString(before->value), y = ToString(after->value);
      const auto part = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
      const auto at = static_cast<size_t>(part.first - x.begin());
      const auto type = [](const NamedAttr& attr) {
        return fmt::format(" ({})", ToString(TypeOf(attr.value)));
      };
      change.before = x == y ? change.before + type(*before) : PartFrom(x, at);
      change.after = x == y ? change.after + type(*after) : PartFrom(y, at);
    }
    changes_.push_back(std::move(change));
  }

  bool IsSame(const NamedAttr& a, const NamedAttr& b) const {
    if (HasBlocks(a.value) || HasBlocks(b.value)) return RunsSameBlocks(a, b);
    if (a.value == b.value && !ReadsVariables(a.value)) return true;
    const std::optional<Names> before = NamesIn(a, a_.HasSubBlock());
    const std::optional<Names> after = NamesIn(b, b_.HasSubBlock());
    if (before && after) {
      return std::equal(before->begin(), before->end(), after->begin(), after->end(),
                        [&](const auto& x, const auto& y) { return sides_.IsSameName(x, y); });
    }
    const OpSpec* spec = sides_.ops.Find(a_.type());
    const AttrDef* declared = spec ? spec->FindAttr(a.name) : nullptr;
    const AttrType type = declared ? declared->type : TypeOf(a.value);
    Attribute x, y;
    return ConvertAttribute(a.value, type, &x) && ConvertAttribute(b.value, type, &y) &&
           // Compares texts, because nans are not equal.
           (x == y || (HoldsFloats(type) && ToString(x) == ToString(y)));
  }
  bool RunsSameBlocks(const NamedAttr& a, const NamedAttr& b) const {
    const std::vector<int> before = OpDesc("", {}, {}, {a}).SubBlocks();
    const std::vector<int> after = OpDesc("", {}, {}, {b}).SubBlocks();
    return std::equal(before.begin(), before.end(), after.begin(), after.end(),
                      [&](int x, int y) { return sides_.IsSameBlock(x, y); });
  }

  const OpDesc &a_, &b_;
  const DiffSides& sides_;
  std::vector<DiffChange> changes_;
};

}  // namespace

bool DiffSides::IsSameName(const std::string& before, const std::string& after) const {
  const int number = names.Find(before);
  if (number < 0 || names.AfterOf(number) < 0) return before == after;
  return names.AfterOf(number) == names.Find(after);
}

bool DiffSides::IsSameBlock(int before, int after) const {
  const bool known = before >= 0 && static_cast<size_t>(before) < block_after.size();
  return known ? block_after[static_cast<size_t>(before)] == after : before == after;
}

std::string NamesText(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  Names shown;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) shown.push_back(NameText(names[i]));
  const std::string more =
      names.size() > kShown ? fmt::format(", ... {} in all", names.size()) : "";
  return "[" + Join(shown, ", ") + more + "]";
}

std::vector<DiffChange> ChangesOfOp(const OpDesc& before, const OpDesc& after,
                                    const DiffSides& sides) {
  return OpComparer(before, after, sides).Run();
}

}  // namespace coracle::inline internal
