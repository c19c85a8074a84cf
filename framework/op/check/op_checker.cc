#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/check/attr_limits.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <coracle/framework/op/context/inner_gradient.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/recomputed.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_set>

namespace coracle {
namespace {

using Severity = VerifyProblem::Severity;

// Past these limits, further problems of an op are only counted, and nearest names are not
// searched: an op from an untrusted file may have a hundred thousand slots.
constexpr size_t kMaxProblems = 100;
constexpr size_t kMaxHints = 8;
constexpr size_t kMaxPath = 200;

// Attrs that any op may have and that are read without a declaration.
struct CommonAttr {
  const char* name;
  AttrType type;
};
constexpr CommonAttr kCommonAttrs[] = {
    {kOpRoleAttr, AttrType::kInt},           {kOpRoleVarAttr, AttrType::kStrings},
    {kForwardOpAttr, AttrType::kString},     {kRecomputedFromAttr, AttrType::kStrings},
    {kOuterReadsAttr, AttrType::kStrings},   {kOuterInputsAttr, AttrType::kStrings},
    {kTrainingStageAttr, AttrType::kString}, {kTrainingPartAttr, AttrType::kString},
    {kTrainingOfAttr, AttrType::kString}};

const CommonAttr* FindCommonAttr(std::string_view name) {
  const auto* found = std::find_if(std::begin(kCommonAttrs), std::end(kCommonAttrs),
                                   [&](const CommonAttr& attr) { return attr.name == name; });
  return found == std::end(kCommonAttrs) ? nullptr : found;
}

// Attrs that any op may have and that are ignored: information that files keep about the op, and
// the choice of an implementation, which the executor makes itself.
bool IsIgnoredAttr(std::string_view name) {
  static const std::unordered_set<std::string_view> kIgnored = {
      "with_quant_attr",  "use_cudnn",         "use_mkldnn",        "use_quantizer",
      "mkldnn_data_type", "force_fp32_output", "workspace_size_MB", "exhaustive_search",
      "use_addto",        "x_data_format",     "y_data_format",     "x_num_flatten_dims",
      "data_format",      "is_test",           "force_cpu",         "place_type",
      "rnn_block_id",     "is_negative"};
  return IsBookkeepingAttr(name) || kIgnored.count(name) > 0 || name.starts_with("Scale_") ||
         name.starts_with("fuse_") || name.starts_with("fused_");
}

// Names met so far, in a list while they are few, as in nearly all cases.
class SeenNames {
 public:
  bool Insert(std::string_view name) {  // false if it was met before
    auto end = few_.begin() + static_cast<std::ptrdiff_t>(size_);
    if (size_ < few_.size()) {
      if (std::find(few_.begin(), end, name) != end) return false;
      few_[size_++] = name;
      return true;
    }
    if (many_.empty()) many_.insert(few_.begin(), few_.end());
    return many_.insert(name).second;
  }

 private:
  std::array<std::string_view, 16> few_;
  size_t size_ = 0;
  std::unordered_set<std::string_view> many_;
};

class OpChecker {
 public:
  OpChecker(const OpSpec& def, const OpDesc& op, int block, int index,
            std::vector<VerifyProblem>* problems)
      : def_(def), op_(op), block_(block), index_(index), problems_(problems) {}

  void Run() {
    CheckSlots(op_.inputs(), def_.inputs, "input");
    CheckSlots(op_.outputs(), def_.outputs, "output");
    CheckAttrs();
    if (const auto path = def_.FileOf(op_)) {
      Add(Severity::kNote, "names_file",
          fmt::format("reads or writes the file {}: runs refuse it without --allow_files",
                      Quote(*path, kMaxPath)));
    }
    if (dropped_ == 0) return;
    problems_->push_back({dropped_severity_, "more",
                          fmt::format("has {} more problems of this kind", dropped_), "", block_,
                          index_, def_.type, "", ""});
  }

 private:
  void Add(Severity severity, const char* rule, std::string message, std::string_view slot = "") {
    if (++added_ > kMaxProblems) {
      ++dropped_;
      if (severity == Severity::kError) dropped_severity_ = severity;
      return;
    }
    problems_->push_back(
        {severity, rule, std::move(message), "", block_, index_, def_.type, BriefName(slot), ""});
  }
  template <class Defs>
  std::string Hint(std::string_view name, const Defs& defs) {
    if (++hints_ > kMaxHints) return "";
    std::vector<std::string> names;
    for (const auto& def : defs) names.push_back(def.name);
    return DidYouMean(name, names);
  }

  void CheckSlots(const SlotList& slots, const std::vector<SlotDef>& defs, const char* what) {
    SeenNames seen;
    for (const Slot& slot : slots) {
      if (seen.Insert(slot.name))
        CheckSlot(slot, defs, what);
      else
        Add(Severity::kError, "duplicate_slot",
            fmt::format("{} {} is given twice", what, Quote(slot.name)), slot.name);
    }
    for (const SlotDef& def : defs) {
      if (def.optional) continue;
      const auto slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& s) {
        return s.name == def.name && !s.args.empty();
      });
      if (slot == slots.end())
        Add(Severity::kError, "missing_slot", fmt::format("{} {} is required", what, def.name),
            def.name);
      else if (std::any_of(slot->args.begin(), slot->args.end(), IsEmptyName))
        Add(Severity::kError, "missing_slot",
            fmt::format("{} {} is required and holds {}", what, def.name, kEmptyVarName), def.name);
    }
  }

  void CheckSlot(const Slot& slot, const std::vector<SlotDef>& defs, const char* what) {
    auto def = std::find_if(defs.begin(), defs.end(),
                            [&](const SlotDef& d) { return d.name == slot.name; });
    if (def == defs.end()) {
      if (slot.args.empty()) return;  // "ResidualData: []" and the like
      Add(Severity::kError, "unknown_slot",
          fmt::format("has no {} {}{}", what, Quote(slot.name), Hint(slot.name, defs)), slot.name);
      return;
    }
    const bool list = def->variadic || (def_.multi_tensor && !def_.IsShared(slot.name));
    if (!list && slot.args.size() > 1) {
      Add(Severity::kError, "slot_arity",
          fmt::format("{} {} holds one variable, got {}", what, slot.name, slot.args.size()),
          slot.name);
    }
  }

  void CheckAttrs() {
    SeenNames seen;
    for (const NamedAttr& attr : op_.attrs()) {
      if (!seen.Insert(attr.name)) {
        Add(Severity::kError, "duplicate_attr",
            fmt::format("attr {} is given twice", Quote(attr.name)));
      }
      const AttrDef* def = def_.FindAttr(attr.name);
      if (def)
        CheckAttr(*def, attr.value);
      else if (const CommonAttr* common = FindCommonAttr(attr.name))
        CheckType(common->name, common->type, attr.value);
      else if (!IsIgnoredAttr(attr.name))
        UnknownAttr(attr);
    }
    for (const AttrDef& def : def_.attrs) {
      if (!def.default_value && !op_.HasAttr(def.name)) {
        Add(Severity::kError, "missing_attr", fmt::format("attr {} is required", def.name));
      }
    }
  }

  void UnknownAttr(const NamedAttr& attr) {
    const RefusedAttr* refused = FindRefusedAttr(def_.type, attr.name);
    if (refused && !IsNumber(attr.value, refused->neutral)) {
      Add(Severity::kError, "unknown_attr",
          fmt::format("attr {} is not supported: leave it out, or give it the value {}",
                      Quote(attr.name), refused->neutral));
      return;
    }
    Add(Severity::kNote, "unknown_attr",
        fmt::format("attr {} is not known and ignored{}", Quote(attr.name),
                    Hint(attr.name, def_.attrs)));
  }

  static bool IsNumber(const Attribute& value, double number) {
    Attribute converted;
    return ConvertAttribute(value, AttrType::kFloat64, &converted)
               ? std::get<double>(converted) == number
               : ConvertAttribute(value, AttrType::kBoolean, &converted) &&
                     std::get<bool>(converted) == (number != 0);
  }

  void CheckType(const char* name, AttrType type, const Attribute& value) {
    Attribute converted;
    if (!ConvertAttribute(value, type, &converted)) WrongType(name, type, value);
  }

  void WrongType(std::string_view name, AttrType type, const Attribute& value) {
    Add(Severity::kError, "attr_type",
        fmt::format("attr {} must be {}, got {} {}", name, ToString(type), ToString(TypeOf(value)),
                    BriefValue(value)));
  }

  void CheckAttr(const AttrDef& def, const Attribute& value) {
    Attribute converted;
    if (!ConvertAttr(def, value, &converted)) return WrongType(def.name, def.type, value);
    const std::string violated = ViolatedLimit(def, converted);
    if (violated.empty()) return;
    Add(Severity::kError, "attr_range", fmt::format("attr {} must {}", def.name, violated));
  }

  const OpSpec& def_;
  const OpDesc& op_;
  int block_, index_;
  std::vector<VerifyProblem>* problems_;
  size_t added_ = 0, dropped_ = 0, hints_ = 0;
  Severity dropped_severity_ = Severity::kNote;
};

}  // namespace

std::string BriefName(std::string_view name) {
  constexpr size_t kMaxName = 256;
  if (name.size() <= kMaxName) return std::string(name);
  return std::string(name.substr(0, kMaxName)) + "...";
}

void CheckOp(const OpSpec& def, const OpDesc& op, int block, int index,
             std::vector<VerifyProblem>* problems) {
  OpChecker(def, op, block, index, &Required(problems, "the problems of CheckOp")).Run();
}

}  // namespace coracle
