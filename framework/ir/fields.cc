#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/fields.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <unordered_set>

namespace coracle {
namespace {

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

// The description of a valid value of that type for errors; "" if only conversion decides.
const char* WantedOf(AttrType type, const Attribute& value) {
  switch (type) {
    case AttrType::kBoolean:
      return std::holds_alternative<bool>(value) ? "" : "true or false";
    case AttrType::kInt:
    case AttrType::kLong:
    case AttrType::kFloat:
    case AttrType::kFloat64:
      return std::visit([](const auto& v) { return kIsNumber<std::decay_t<decltype(v)>>; }, value)
                 ? ""
                 : "a number";
    case AttrType::kString:
      return std::holds_alternative<std::string>(value) ? "" : "a text";
    default:
      return "";
  }
}

// Converts the value to the field's type.
Attribute Converted(const FieldSpec& field, const std::string& who, const Attribute& value) {
  std::string wanted = WantedOf(field.member.type, value);
  Attribute converted;
  if (wanted.empty() && !ConvertAttribute(value, field.member.type, &converted)) {
    wanted =
        fmt::format("of type {}, got {}", ToString(field.member.type), ToString(TypeOf(value)));
  }
  if (!wanted.empty()) ThrowInvalid(fmt::format("{}: {} must be {}", who, field.name, wanted));
  return converted;
}

// Refuses duplicates, since readers would differ in which of two values they take.
void RefuseTwice(const std::string& who, const Setting& setting) {
  std::unordered_set<std::string_view> names;
  for (const NamedAttr& attr : setting.attrs) {
    if (!names.insert(attr.name).second)
      ThrowInvalid(fmt::format("{}: {} is given twice", who, attr.name));
  }
}

// The error for a number, or for an element of a list; "" if there is none.
struct RangeCheck {
  const FieldRange& range;

  template <class T>
  std::string operator()(const T& value) const {
    if constexpr (kIsNumber<T>) {
      const auto number = static_cast<double>(value);
      const bool too_high = number > range.high && !range.high_text.empty();
      if (!range.Holds(number))
        return fmt::format("{}, got {}", too_high ? range.high_text : range.text, value);
    }
    return "";
  }
  template <class T>
  std::string operator()(const std::vector<T>& values) const {
    std::string wrong;
    for (size_t i = 0; wrong.empty() && i < values.size(); ++i)
      wrong = (*this)(static_cast<T>(values[i]));
    return wrong;
  }
};

}  // namespace

FieldTable FieldTable::Any(std::string doc) {
  FieldTable table(std::move(doc));
  table.any_ = true;
  return table;
}

FieldTable FieldTable::Of(std::string doc, const Setting& defaults,
                          const std::vector<std::pair<std::string, std::string>>& docs) {
  FieldTable table(std::move(doc));
  for (const NamedAttr& attr : defaults.attrs) {
    FieldSpec field{attr.name, "", {TypeOf(attr.value), nullptr, nullptr}, 0, attr.value};
    for (const auto& [name, text] : docs)
      if (name == attr.name) field.doc = text;
    table.AddSpec(std::move(field));
  }
  return table;
}

const FieldSpec* FieldTable::Find(std::string_view name) const {
  for (const FieldSpec& field : fields_)
    if (field.name == name) return &field;
  return nullptr;
}

void FieldTable::AddSpec(FieldSpec field) {
  if (!IsIdentifier(field.name))
    ThrowInvalid(fmt::format("a field cannot be called {}", Quote(field.name)));
  if (Find(field.name))
    ThrowInvalid(fmt::format("there is a field called {} already", Quote(field.name)));
  fields_.push_back(std::move(field));
}

void FieldSpec::Set(FieldRange new_range) {
  const bool whole = member.type == AttrType::kInt || member.type == AttrType::kLong ||
                     member.type == AttrType::kInts || member.type == AttrType::kLongs;
  if (whole && !new_range.whole_text.empty()) new_range.text = new_range.whole_text;
  range = std::move(new_range);
}

void FieldTable::Set(const FieldSpec& field, const std::string& who, const Attribute& value,
                     void* options) {
  if (!options) ThrowInvalid("the options of a field are a null pointer");
  if (!field.member.set)
    ThrowInvalid(fmt::format("{}: the field {} has no member to set", who, Quote(field.name)));
  const Attribute converted = Converted(field, who, value);
  try {
    field.member.set(static_cast<char*>(options) + field.offset, converted);
  } catch (const Error& error) {
    throw error.WithPrefix(field.name);
  }
}

const FieldSpec& FieldTable::Known(const std::string& who, const std::string& name) const {
  if (const FieldSpec* field = Find(name)) return *field;
  std::vector<std::string> names;
  for (const FieldSpec& field : fields_) names.push_back(field.name);
  ThrowInvalid(fmt::format("{}: there is no {}{}", who, Quote(name), DidYouMean(name, names)));
}

void FieldTable::RequireGiven(const std::string& who, const Setting& setting) const {
  for (const FieldSpec& field : fields_) {
    if (field.required && !setting.Find(field.name))
      ThrowInvalid(fmt::format("{}: {} is required", who, field.name));
  }
}

void FieldTable::ReadInto(const std::string& who, const Setting& setting, void* options) const {
  RefuseTwice(who, setting);
  for (const NamedAttr& attr : setting.attrs) Set(Known(who, attr.name), who, attr.value, options);
  RequireGiven(who, setting);
}

void FieldTable::CheckSetting(const std::string& who, const Setting& setting) const {
  RefuseTwice(who, setting);
  if (any_) return;
  for (const NamedAttr& attr : setting.attrs) {
    const FieldSpec& field = Known(who, attr.name);
    const std::string wrong = OutOfRange(field, Converted(field, who, attr.value));
    if (!wrong.empty()) ThrowInvalid(fmt::format("{}: {} {}", who, field.name, wrong));
  }
  RequireGiven(who, setting);
}

std::optional<Attribute> FieldTable::ValueOf(const FieldSpec& field, const void* options) {
  if (!options) ThrowInvalid("the options of a field are a null pointer");
  if (!field.member.get) return std::nullopt;
  return field.member.get(static_cast<const char*>(options) + field.offset);
}

std::string FieldTable::OutOfRange(const FieldSpec& field, const void* options) {
  if (!field.range) return "";
  const std::optional<Attribute> value = ValueOf(field, options);
  return value && value != field.unset ? OutOfRange(field, *value) : "";
}

std::string FieldTable::OutOfRange(const FieldSpec& field, const Attribute& value) {
  return field.range ? OutOfRange(*field.range, value) : "";
}

std::string FieldTable::OutOfRange(const FieldRange& range, const Attribute& value) {
  return std::visit(RangeCheck{range}, value);
}

void FieldTable::CheckRanges(const std::string& who, const void* options) const {
  for (const FieldSpec& field : fields_) {
    const std::string wrong = OutOfRange(field, options);
    if (!wrong.empty()) ThrowInvalid(fmt::format("{}: {} {}", who, field.name, wrong));
  }
}

std::vector<NamedAttr> FieldTable::Values(const void* options) const {
  std::vector<NamedAttr> values;
  for (const FieldSpec& field : fields_) {
    if (field.nested) continue;
    std::optional<Attribute> value = ValueOf(field, options);
    if (value) values.push_back({field.name, std::move(*value)});
  }
  return values;
}

void FieldTable::AddInlined(const FieldTable& table, size_t offset) {
  for (FieldSpec field : table.fields_) {
    field.offset += offset;
    AddSpec(std::move(field));
  }
  for (const auto& [own, rule] : table.rules_) rules_.emplace_back(offset + own, rule);
}

void FieldTable::ApplyRules(void* options, const FieldPlaces& given) const {
  for (const auto& [offset, rule] : rules_) rule(static_cast<char*>(options) + offset, given);
}

bool IsIdentifier(std::string_view name) {
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

const FieldTable* FieldsOfKind(const KindsWithFields& kinds, std::string_view kind) {
  for (const auto& [name, fields] : kinds)
    if (name == kind) return &fields;
  return nullptr;
}

FieldRange RangeFrom(double low, double high) {
  if (!std::isinf(high))
    return {low, high, false, true, fmt::format("must lie in [{:g}, {:g})", low, high)};
  return {low,
          high,
          false,
          true,
          fmt::format("must be finite and at least {:g}", low),
          fmt::format("must be at least {:g}", low)};
}

namespace {

// A bound as in a text: 1099511627776, not 1.09951e+12.
std::string Bound(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{:g}", value);
}

}  // namespace

FieldRange ClosedRange(double low, double high) {
  return {low, high, false, false, fmt::format("must be in [{}, {}]", Bound(low), Bound(high))};
}

FieldRange LimitedRange(double low, double high) {
  FieldRange range = ClosedRange(low, high);
  range.text = fmt::format("must be at least {}", Bound(low));
  range.high_text = fmt::format("must be at most {}", Bound(high));
  return range;
}

FieldRange OpenRange(double low, double high) {
  return {low, high, true, true, fmt::format("must lie in ({}, {})", Bound(low), Bound(high))};
}

FieldRange PositiveRange() { return {0, HUGE_VAL, true, false, "must be positive"}; }

FieldRange NotNegativeRange() {
  return {0, HUGE_VAL, false, true, "must be finite and not negative", "must not be negative"};
}

FieldRange FiniteRange() {
  constexpr double kMost = std::numeric_limits<double>::max();
  return {-kMost, kMost, false, false, "must be finite"};
}

}  // namespace coracle
