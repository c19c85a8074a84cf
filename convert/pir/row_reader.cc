// Reads ops by the rows of the table.

#include <coracle/convert/pir/op_reader.h>
#include <coracle/convert/pir/row_words.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace coracle::pir {
namespace {

// A constant of more elements is not turned into an attr.
constexpr int64_t kMaxKnown = 1024;

std::optional<std::vector<int64_t>> IntegersOf(const ValuePtr& value) {
  std::vector<int64_t> known;
  if (value->type.kind == Type::Kind::kList) {
    for (const ValuePtr& item : value->items) {
      const auto one = IntegersOf(item);
      if (!one || one->size() != 1) return std::nullopt;
      known.push_back(one->front());
    }
    return known;
  }
  if (!value->constant) return std::nullopt;
  const Constant& constant = *value->constant;
  if (!constant.fill) return constant.integers;
  if (!constant.shape.IsKnown() || constant.shape.numel() > kMaxKnown) return std::nullopt;
  const auto count = static_cast<size_t>(constant.shape.numel());
  if (constant.exact) return std::vector<int64_t>(count, *constant.exact);
  const double fill = *constant.fill;
  const bool integer = fill >= -0x1p63 && fill < 0x1p63 && std::trunc(fill) == fill;
  if (!integer) return std::nullopt;
  return std::vector<int64_t>(count, static_cast<int64_t>(fill));
}

class RowReader {
 public:
  RowReader(ProgramBuilder& builder, const Op& op, const Row& row)
      : builder_(builder),
        op_(op),
        row_(row),
        spec_(builder.ops().Get(row.type)),
        rules_(ParseAttrRules(row.attrs)) {}

  void Run() {
    ReadInputs();
    ReadAttrs();
    std::vector<OutSlot> outputs = ReadOutputs();
    builder_.Append(op_, row_.type, std::move(inputs_), outputs, std::move(attrs_));
  }

 private:
  void ReadInputs() {
    size_t next = 0;
    for (const std::string& word : Words(row_.inputs)) {
      if (word[0] == '=') {
        const SettingWord setting = ParseSetting(word);
        used_.insert(setting.name);
        if (const Attribute* given = op_.Find(setting.name)) {
          SetAttr(setting.attr, setting.name, *given);
          continue;
        }
        ReadSetting(setting, builder_.Operand(op_, next++));
      } else {
        const ValuePtr value = builder_.Operand(op_, next++);
        if (value && word != "_") inputs_.push_back({word, builder_.VarsOf(op_, value)});
      }
    }
    for (; next < op_.operands.size(); ++next) {
      if (op_.operands[next] == 0) continue;
      builder_.Refuse(op_, fmt::format("operand {} has no counterpart in {}", next, row_.type));
    }
  }

  // An operand that is an attr if it is a constant.
  void ReadSetting(const SettingWord& setting, const ValuePtr& value) {
    if (!value) return;
    if (AddKnown(setting, value)) return;
    const bool list = value->type.kind == Type::Kind::kList;
    if (list && !setting.list.empty()) {
      inputs_.push_back({setting.list, builder_.VarsOf(op_, value)});
    } else if (!setting.slot.empty()) {
      inputs_.push_back({setting.slot, {list ? Joined(value) : builder_.VarOf(op_, value)}});
    } else {
      builder_.Refuse(op_, fmt::format("its operand {} must be a constant", setting.name));
    }
  }

  bool AddKnown(const SettingWord& setting, const ValuePtr& value) {
    const AttrDef* attr = spec_.FindAttr(setting.attr);
    if (!attr) return false;
    switch (attr->type) {
      case AttrType::kInts:
      case AttrType::kLongs:
        if (auto known = KnownIntegers(builder_, op_, value))
          return SetAttr(setting.attr, setting.name, *known);
        return false;
      case AttrType::kInt:
      case AttrType::kLong:
        if (auto known = KnownIntegers(builder_, op_, value); known && known->size() == 1)
          return SetAttr(setting.attr, setting.name, known->front());
        return false;
      default:
        if (auto known = KnownNumber(value)) return SetNumber(setting, attr->type, *known);
        return false;
    }
  }

  bool SetNumber(const SettingWord& setting, AttrType type, double number) {
    if (type == AttrType::kString)
      return SetAttr(setting.attr, setting.name, fmt::format("{}", number));
    if (type == AttrType::kBoolean) return SetAttr(setting.attr, setting.name, number != 0);
    return SetAttr(setting.attr, setting.name, number);
  }

  // One tensor of a list of tensors with one element.
  std::string Joined(const ValuePtr& list) {
    const bool scalars = !list->items.empty() && list->items[0]->type.shape.rank() == 0;
    const char* type = scalars ? "stack" : "concat";
    return builder_.writer()
        .Make(type, {{"X", builder_.VarsOf(op_, list)}}, {{"axis", int32_t{0}}},
              scalars ? "Y" : "Out")
        .name();
  }

  bool SetAttr(const std::string& attr, const std::string& name, const Attribute& value) {
    const AttrDef* def = spec_.FindAttr(attr);
    if (!def) builder_.Refuse(op_, fmt::format("{} has no attribute {}", row_.type, attr));
    attrs_.push_back({attr, ConvertTo(builder_, op_, name, value, def->type, rules_.saturate)});
    return true;
  }

  void ReadAttrs() {
    for (const Attr& attr : op_.attrs) {
      if (used_.count(attr.name) || rules_.left_out.count(attr.name)) continue;
      if (const auto found = rules_.required.find(attr.name); found != rules_.required.end()) {
        if (PlainText(attr.value) == found->second) continue;
        builder_.Refuse(op_, fmt::format("the attribute {} = {} is only known as {}", attr.name,
                                         ToString(attr.value), found->second));
      }
      const auto renamed = rules_.renamed.find(attr.name);
      const std::string& name = renamed == rules_.renamed.end() ? attr.name : renamed->second;
      if (!spec_.FindAttr(name)) {
        if (ChoosesImplementation(attr.name)) continue;
        builder_.Refuse(op_, fmt::format("the attribute {} = {} has no counterpart in {}",
                                         Quote(attr.name), ToString(attr.value), row_.type));
      }
      SetAttr(name, attr.name, attr.value);
    }
    for (const auto& [name, text] : rules_.added)
      SetAttr(name, name, ParseValue(text, spec_.FindAttr(name)->type));
  }

  std::vector<OutSlot> ReadOutputs() {
    const std::vector<std::string> words = Words(row_.outputs);
    std::vector<OutSlot> outputs;
    for (size_t i = 0; i < op_.results.size(); ++i) {
      if (i >= words.size() || words[i] == "_") {
        builder_.Define(op_, op_.results[i],
                        std::make_shared<Value>(Value{.type = op_.results[i].type,
                                                      .block = &builder_.writer().block()}));
        continue;
      }
      const size_t equal = words[i].find('=');
      OutSlot out{words[i].substr(0, equal), i};
      if (equal != std::string::npos) out.same_as = InputOf(words[i].substr(equal + 1));
      outputs.push_back(std::move(out));
    }
    return outputs;
  }

  std::string InputOf(const std::string& slot) const {
    for (const Slot& input : inputs_)
      if (input.name == slot && !input.args.empty()) return input.args[0];
    return "";
  }

  ProgramBuilder& builder_;
  const Op& op_;
  const Row& row_;
  const OpSpec& spec_;
  const AttrRules rules_;
  SlotList inputs_;
  AttrList attrs_;
  std::set<std::string> used_;  // names that are operands
};

}  // namespace

std::optional<double> KnownNumber(const ValuePtr& value) {
  if (!value->constant) return std::nullopt;
  const Constant& constant = *value->constant;
  std::optional<int64_t> integer;
  if (constant.fill) {
    if (!constant.shape.IsKnown() || constant.shape.numel() != 1) return std::nullopt;
    if (!constant.exact) return constant.fill;
    integer = constant.exact;
  } else if (constant.integers.size() == 1) {
    integer = constant.integers[0];
  }
  if (!integer || *integer > kMostExact || *integer < -kMostExact) return std::nullopt;
  return static_cast<double>(*integer);
}

std::optional<std::vector<int64_t>> KnownIntegers(ProgramBuilder& builder, const Op& op,
                                                  const ValuePtr& value) {
  std::optional<std::vector<int64_t>> known = IntegersOf(value);
  if (known) builder.CountCopies(op, known->size());
  return known;
}

Attribute ConvertTo(const ProgramBuilder& builder, const Op& op, const std::string& name,
                    const Attribute& value, AttrType type, bool saturate) {
  Attribute from = value;
  if (auto* list = std::get_if<std::vector<int64_t>>(&from); list && saturate) {
    for (int64_t& i : *list) i = std::clamp<int64_t>(i, INT32_MIN, INT32_MAX);
  }
  const bool floats = type == AttrType::kFloat || type == AttrType::kFloat64;
  if (const auto* integer = std::get_if<int64_t>(&from); integer && floats)
    from = static_cast<double>(*integer);
  if (const auto* integer = std::get_if<int32_t>(&from); integer && floats)
    from = static_cast<double>(*integer);
  Attribute to;
  if (!ConvertAttribute(from, type, &to)) {
    builder.Refuse(op, fmt::format("the attribute {} = {} does not fit {}", Quote(name),
                                   ToString(value), ToString(type)));
  }
  return to;
}

void ReadRow(ProgramBuilder& builder, const Op& op, const Row& row) {
  RowReader(builder, op, row).Run();
}

}  // namespace coracle::pir
