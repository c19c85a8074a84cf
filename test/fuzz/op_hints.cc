#include <coracle/framework/base/text.h>
#include <coracle/test/fuzz/op_hints.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace coracle {
namespace {

SlotHint ParseSlot(std::string_view text) {
  SlotHint slot;
  size_t at = text.find_first_of("?*:[");
  slot.name = std::string(text.substr(0, at));
  while (at < text.size()) {
    const char c = text[at++];
    if (c == '?') slot.optional = true;
    if (c == '*') slot.variadic = true;
    if (c == ':') {
      slot.kind = text[at++];
      if (at < text.size() && text[at] == '<') {
        const size_t end = std::min(text.find('[', at), text.size());
        slot.limit = std::string(text.substr(at + 1, end - at - 1));
        at = end;
      }
    }
    if (c == '[') {
      slot.any_shape = false;
      slot.dims = Split(std::string(text.substr(at, text.size() - at - 1)), ',');
      at = text.size();
    }
  }
  const auto rest = std::find(slot.dims.begin(), slot.dims.end(), "...");
  if (rest != slot.dims.end()) {
    slot.rest_at = static_cast<int>(rest - slot.dims.begin());
    slot.dims.erase(rest);
  }
  return slot;
}

Recipe Parse(const OpHint& hint, bool smooth) {
  Recipe recipe{{}, {}, hint.finish, smooth};
  for (const std::string& slot : Split(hint.slots, ' ')) {
    if (!slot.empty()) recipe.slots.push_back(ParseSlot(slot));
  }
  for (const std::string& attr : Split(hint.attrs, ' ')) {
    const size_t equals = attr.find('=');
    if (equals != attr.npos)
      recipe.attrs.emplace_back(attr.substr(0, equals), Split(attr.substr(equals + 1), '|'));
  }
  return recipe;
}

using Table = std::map<std::string, std::vector<Recipe>>;

void AddTo(Table& table, const OpHint& hint, bool smooth) {
  for (const std::string& type : Split(hint.types, ' ')) table[type].push_back(Parse(hint, smooth));
}

const Table& SmoothTable() {
  static const Table table = [] {
    Table made;
    for (const OpHint& hint : SmoothHints()) AddTo(made, hint, true);
    return made;
  }();
  return table;
}

const Table& WholeTable() {
  static const Table table = [] {
    Table made = SmoothTable();
    for (const OpHint& hint : OtherHints()) AddTo(made, hint, false);
    return made;
  }();
  return table;
}

}  // namespace

const VarMeta* OpDraft::Find(const std::string& name) const {
  for (const ProgramInput& input : made) {
    if (input.name == name) return &input.meta;
  }
  const VarDesc* var = block.FindVarRecursive(name);
  return var ? &var->meta() : nullptr;
}

const Shape& OpDraft::ShapeOf(std::string_view slot, size_t i) const {
  for (const Slot& given : inputs) {
    if (given.name == slot) return Find(given.args.at(i))->shape;
  }
  throw InternalError("a hint asks for a slot that the op was not given");
}

bool OpDraft::Has(std::string_view attr) const {
  return std::any_of(attrs.begin(), attrs.end(),
                     [&](const NamedAttr& a) { return a.name == attr; });
}

void OpDraft::Set(std::string_view attr, Attribute value) {
  for (NamedAttr& given : attrs) {
    if (given.name == attr) {
      given.value = std::move(value);
      return;
    }
  }
  attrs.push_back({std::string(attr), std::move(value)});
}

std::string OpDraft::NewInput(DType type, const Shape& shape, double limit) {
  ProgramInput input;
  input.name = "in" + std::to_string((*next_name)++);
  input.meta = {VarType::kLoDTensor, type, shape, 0};
  input.limit = limit;
  made.push_back(input);
  return input.name;
}

const std::vector<Recipe>& RecipesFor(const std::string& type, bool smooth) {
  static const std::vector<Recipe> none;
  const Table& table = smooth ? SmoothTable() : WholeTable();
  const auto found = table.find(type);
  return found == table.end() ? none : found->second;
}

std::optional<SlotHint> SlotFromDoc(const SlotDef& slot) {
  const size_t end = slot.doc.find(']');
  if (slot.doc.empty() || slot.doc[0] != '[' || end == slot.doc.npos) return std::nullopt;
  std::string dims;
  for (const std::string& word : Split(slot.doc.substr(1, end - 1), ',')) {
    const std::string dim(Trim(word));
    const bool letter = dim.size() == 1 && std::isalnum(static_cast<unsigned char>(dim[0]));
    if (!letter && dim != "...") return std::nullopt;
    dims += (dims.empty() ? "" : ",") + dim;
  }
  SlotHint hint = ParseSlot(slot.name + "[" + dims + "]");
  hint.optional = slot.optional;
  hint.variadic = slot.variadic;
  return hint;
}

const std::vector<std::string>& SmoothTypes() {
  static const std::vector<std::string> types = [] {
    std::vector<std::string> names;
    for (const auto& [type, recipes] : SmoothTable()) names.push_back(type);
    return names;
  }();
  return types;
}

Attribute ParseAttr(const std::string& text, AttrType type, const std::map<char, int64_t>& dims) {
  if (type == AttrType::kString) return text;
  if (type == AttrType::kBoolean) return text == "true";
  const auto number = [&](const std::string& word) {
    const auto letter = word.size() == 1 ? dims.find(word[0]) : dims.end();
    return letter != dims.end() ? static_cast<double>(letter->second)
                                : std::strtod(word.c_str(), nullptr);
  };
  std::vector<double> list;
  const bool is_list = !text.empty() && text[0] == '[';
  const std::string inner = is_list ? text.substr(1, text.size() - 2) : text;
  for (const std::string& word : Split(inner, ',')) {
    if (!word.empty()) list.push_back(number(word));
  }
  switch (type) {
    case AttrType::kInt:
      return static_cast<int32_t>(list.at(0));
    case AttrType::kLong:
      return static_cast<int64_t>(list.at(0));
    case AttrType::kFloat:
      return static_cast<float>(list.at(0));
    case AttrType::kFloat64:
      return list.at(0);
    case AttrType::kInts:
      return std::vector<int32_t>(list.begin(), list.end());
    case AttrType::kLongs:
      return std::vector<int64_t>(list.begin(), list.end());
    case AttrType::kFloats:
      return std::vector<float>(list.begin(), list.end());
    case AttrType::kFloat64s:
      return list;
    case AttrType::kStrings: {
      std::vector<std::string> words = Split(inner, ',');
      std::erase(words, "");
      return words;
    }
    case AttrType::kScalars: {
      std::vector<Scalar> scalars;
      for (const double value : list) scalars.push_back({value});
      return scalars;
    }
    default:
      throw InternalError("a hint gives an attr of a type that it cannot spell");
  }
}

}  // namespace coracle
