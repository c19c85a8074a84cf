// Writes ops by the rows of the table, read from right to left.

#include <coracle/convert/narrow.h>
#include <coracle/convert/pir/program_writer.h>
#include <coracle/convert/pir/row_words.h>
#include <coracle/convert/pir/signatures.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace coracle::pir {
namespace {

// Other names of an op that a row before them has, or ops that only the reader needs.
bool IsSecondName(std::string_view name) {
  static const std::set<std::string_view> names = {
      "fill",         "grad_add",     "assign_out",     "memcpy",      "memcpy_h2d",
      "memcpy_d2h",   "depend",       "empty_like",     "shadow_feed", "view_shape",
      "npu_identity", "trans_layout", "channel_shuffle"};
  return names.count(name) > 0;
}

const std::multimap<std::string, const Row*>& RowsByType() {
  static const std::multimap<std::string, const Row*> rows = [] {
    std::multimap<std::string, const Row*> map;
    for (const Row& row : AllRows())
      if (!IsSecondName(row.name)) map.emplace(row.type, &row);
    return map;
  }();
  return rows;
}

// A row with what its words say.
struct RowParts {
  explicit RowParts(const ProgramWriter& writer, const Row& of)
      : row(of),
        spec(writer.ops().Get(of.type)),
        rules(ParseAttrRules(of.attrs)),
        dialect(AttrsOf(of.name)) {
    for (const std::string& word : Words(row.inputs)) {
      if (word[0] != '=') {
        slots.insert(word);
        continue;
      }
      const SettingWord setting = ParseSetting(word);
      slots.insert(setting.slot);
      slots.insert(setting.list);
      settings.insert(setting.attr);
    }
  }

  // The attr of a ProgramDesc for an attribute of the dialect.
  std::string AttrNameOf(const std::string& name) const {
    const auto renamed = rules.renamed.find(name);
    return renamed == rules.renamed.end() ? name : renamed->second;
  }

  const Row& row;
  const OpSpec& spec;
  const AttrRules rules;
  const std::vector<DialectAttr> dialect;
  std::set<std::string> slots, settings;  // of the operands
};

// Whether a row can say an op.
class RowMatch {
 public:
  RowMatch(const ProgramWriter& writer, const OpDesc& op, const RowParts& row)
      : writer_(writer), op_(op), row_(row) {}

  // Why the row, which is chosen, cannot say this op; "" if it can.
  std::string WhyNot() const {
    for (const Slot& input : op_.inputs()) {
      if (input.args.empty() || row_.slots.count(input.name) > 0) continue;
      return fmt::format("its operand {} has no counterpart in {}", input.name, row_.row.name);
    }
    for (const Slot& output : op_.outputs()) {
      const bool lost =
          !Gives(output.name) && std::any_of(output.args.begin(), output.args.end(),
                                             [&](const std::string& name) { return IsUsed(name); });
      if (lost)
        return fmt::format("its result {} has no counterpart in {}", output.name, row_.row.name);
    }
    return LostAttr();
  }

  // Among several rows of one type, an attr, an operand or a result's type chooses.
  bool Chosen() const {
    for (const auto& [name, text] : row_.rules.added) {
      const AttrDef* def = row_.spec.FindAttr(name);
      Attribute wanted;
      if (!def || !ConvertAttribute(ParseValue(text, def->type), def->type, &wanted)) return false;
      Attribute has;
      if (!ConvertAttribute(writer_.AttrOf(op_, name), def->type, &has) || !(has == wanted))
        return false;
    }
    const std::string name = row_.row.name;
    const bool sections = op_.HasInput("SectionsTensorList") ||
                          (row_.spec.FindAttr("sections") &&
                           !writer_.Get<std::vector<int32_t>>(op_, "sections").empty());
    if (name == "split") return sections;
    if (name == "split_with_num") return !sections;
    if (name == "conv2d_transpose") return !op_.HasInput("Bias");
    if (name == "conv2d_transpose_bias") return op_.HasInput("Bias");
    if (name == "shape64") return writer_.ResultType(op_, "Out").dtype == DType::kInt64;
    if (name == "shape") return writer_.ResultType(op_, "Out").dtype == DType::kInt32;
    return true;
  }

 private:
  bool Gives(const std::string& slot) const {
    const std::vector<std::string> words = Words(row_.row.outputs);
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return word.substr(0, word.find('=')) == slot;
    });
  }

  bool IsUsed(const std::string& name) const {
    const VarDesc* var = op_.block()->FindVar(name);
    return var && (var->persistable() || !op_.block()->Uses(name).readers.empty());
  }

  // An attr with another value than its default that the dialect's op cannot say.
  std::string LostAttr() const {
    std::set<std::string> said = row_.settings;
    for (const DialectAttr& attr : row_.dialect) said.insert(row_.AttrNameOf(attr.name));
    for (const auto& [name, value] : row_.rules.added) said.insert(name);
    for (const NamedAttr& attr : op_.attrs()) {
      const AttrDef* def = row_.spec.FindAttr(attr.name);
      if (!def || said.count(attr.name) > 0 || ChoosesImplementation(attr.name)) continue;
      Attribute value;
      if (!ConvertAttribute(attr.value, def->type, &value)) value = attr.value;
      if (def->default_value && value == *def->default_value) continue;
      if (IsDerived(attr.name)) continue;
      return fmt::format("its attribute {} = {} has no counterpart in {}", attr.name,
                         ToString(attr.value), row_.row.name);
    }
    return "";
  }

  // Attrs that repeat what operands say, or that a reshape of the operand replaces, or without
  // effect if the dialect's op lacks them.
  bool IsDerived(const std::string& name) const {
    return name == "in_dtype" || name == "is_test" ||
           (name == "num" && std::string(row_.row.name) == "split") ||
           (name == "axis" && row_.slots.count("X") + row_.slots.count("Y") == 2 &&
            row_.slots.size() == 2);
  }

  const ProgramWriter& writer_;
  const OpDesc& op_;
  const RowParts& row_;
};

class RowWriter {
 public:
  RowWriter(ProgramWriter& writer, const OpDesc& op, const RowParts& row)
      : writer_(writer), op_(op), row_(row) {}

  void Write() {
    std::vector<int64_t> operands = Operands();
    std::vector<Json> attrs = Attrs();
    std::vector<std::string> slots;
    bool in_place = false;
    for (const std::string& word : Words(row_.row.outputs)) {
      slots.push_back(word.substr(0, word.find('=')));
      in_place |= word.find('=') != word.npos;
    }
    writer_.Emit(op_, std::string("1.") + row_.row.name + (in_place ? "_" : ""),
                 std::move(operands), slots, std::move(attrs));
  }

 private:
  std::vector<int64_t> Operands() {
    std::vector<int64_t> operands;
    for (const std::string& word : Words(row_.row.inputs)) {
      if (word == "_") {
        // The state of rnn's dropout, which an inference program does not use.
        operands.push_back(writer_.Number(op_, DType::kUInt8, 0));
      } else if (word[0] == '=') {
        const SettingWord setting = ParseSetting(word);
        if (!IsDialectAttr(setting.name)) operands.push_back(SettingOperand(setting));
      } else if (word == "Y" && row_.spec.FindAttr("axis") && !IsDialectAttr("axis")) {
        operands.push_back(Aligned());
      } else {
        operands.push_back(writer_.Operand(op_, word.c_str()));
      }
    }
    while (static_cast<int>(operands.size()) < MoreOperandsOf(row_.row.name)) operands.push_back(0);
    return operands;
  }

  // Y with ones after its dims, where the attr axis says which dims of X these are. Paddle 3 aligns
  // the last dims.
  int64_t Aligned() {
    const int64_t y = writer_.Operand(op_, "Y");
    const int x_rank = writer_.TypeOfSlot(op_, "X").shape.rank();
    const Type type = writer_.TypeOfSlot(op_, "Y");
    const int axis = writer_.Get<int32_t>(op_, "axis");
    if (axis >= 0 && type.shape.rank() > x_rank) {
      writer_.Refuse(op_, fmt::format("its attribute axis = {} aligns X with dims of Y; Paddle 3 "
                                      "aligns the last dims",
                                      axis));
    }
    const int after = axis < 0 ? 0 : x_rank - axis - type.shape.rank();
    if (after <= 0) return y;
    return writer_.Reshaped(op_, y, type, after);
  }

  bool IsDialectAttr(const std::string& name) const {
    return std::any_of(row_.dialect.begin(), row_.dialect.end(),
                       [&](const DialectAttr& attr) { return attr.name == name; });
  }

  // A tensor, or the attr as a constant.
  int64_t SettingOperand(const SettingWord& setting) {
    for (const std::string& slot : {setting.slot, setting.list})
      if (!slot.empty() && op_.HasInput(slot)) return writer_.Operand(op_, slot.c_str());
    const AttrDef* def = row_.spec.FindAttr(setting.attr);
    Attribute value = writer_.AttrOf(op_, setting.attr);
    if (!def || !ConvertAttribute(value, def->type, &value))
      writer_.Refuse(op_, fmt::format("its attribute {} has another type", setting.attr));
    switch (def->type) {
      case AttrType::kInts:
      case AttrType::kLongs:
        return writer_.Numbers(op_, AttributeAs<std::vector<int64_t>>(value));
      case AttrType::kInt:
        return writer_.Number(op_, DType::kInt32, std::get<int32_t>(value));
      case AttrType::kLong:
        return writer_.Number(op_, DType::kInt64,
                              writer_.ExactNumber(op_, std::get<int64_t>(value)));
      case AttrType::kFloat:
        return writer_.Number(op_, DType::kFloat32, static_cast<double>(std::get<float>(value)));
      case AttrType::kFloat64:
        return writer_.Number(op_, DType::kFloat64, std::get<double>(value));
      case AttrType::kString:
        return TextNumber(std::get<std::string>(value));
      default:
        writer_.Refuse(op_,
                       fmt::format("its attribute {} is no constant of Paddle 3", setting.attr));
    }
  }

  int64_t TextNumber(const std::string& text) {
    double number = 0;
    if (!ParseDouble(text, &number))
      writer_.Refuse(op_, fmt::format("{} is no number", Quote(text)));
    return writer_.Number(op_, DType::kFloat64, number);
  }

  std::vector<Json> Attrs() {
    std::vector<Json> attrs;
    for (const DialectAttr& attr : row_.dialect) attrs.push_back(AttrJsonOf(attr));
    return attrs;
  }

  Json AttrJsonOf(const DialectAttr& attr) {
    if (attr.type == 'p') return AttrJson(attr.name, 'p', {});
    const auto required = row_.rules.required.find(attr.name);
    if (required != row_.rules.required.end()) {
      const std::string& text = required->second;
      double number = 0;
      if (attr.type == 's') return AttrJson(attr.name, 's', text);
      if (attr.type == 'b') return AttrJson(attr.name, 'b', text == "true");
      if (!ParseDouble(text, &number)) throw InternalError("a row requires " + text);
      if (attr.type == 'i')
        return AttrJson(attr.name, 'i', ToInt32(static_cast<int64_t>(number), attr.name));
      return AttrJson(attr.name, attr.type, number);
    }
    if (row_.rules.left_out.count(attr.name) > 0) return AttrJson(attr.name, attr.type, false);
    const std::string name = row_.AttrNameOf(attr.name);
    return AttrJson(attr.name, attr.type, writer_.AttrOf(op_, name));
  }

  ProgramWriter& writer_;
  const OpDesc& op_;
  const RowParts& row_;
};

}  // namespace

bool WriteByRow(ProgramWriter& writer, const OpDesc& op, std::string* why) {
  const std::string& type = op.type();
  if (type.starts_with("fake_") || type.ends_with("quantize_linear")) {
    *why =
        "quantization is not written: in Paddle 3 the op says how it rounds, and here it does not";
    return false;
  }
  const auto [begin, end] = RowsByType().equal_range(type);
  if (begin != end) *why = "the op has no counterpart in Paddle 3 with these attributes";
  for (auto at = begin; at != end; ++at) {
    const RowParts row(writer, *at->second);
    const RowMatch match(writer, op, row);
    if (!match.Chosen()) continue;
    *why = match.WhyNot();
    if (!why->empty()) return false;
    RowWriter(writer, op, row).Write();
    return true;
  }
  return false;
}

}  // namespace coracle::pir
