#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/fields.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

namespace coracle {
namespace {

const void* MemberAt(const FieldSpec& field, const void* options) {
  return static_cast<const char*>(options) + field.offset;
}

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

// What a value of that type is, as an error says it; "" where conversion alone decides.
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

// What is wrong with a number, or one of a list; "" where nothing is.
struct RangeCheck {
  const FieldRange& range;

  template <class T>
  std::string operator()(const T& value) const {
    if constexpr (kIsNumber<T>) {
      if (!range.Holds(static_cast<double>(value)))
        return fmt::format("{}, got {}", range.text, value);
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

void FieldTable::Set(const FieldSpec& field, const std::string& who, const Attribute& value,
                     void* options) {
  std::string wanted = WantedOf(field.member.type, value);
  Attribute converted;
  if (wanted.empty() && !ConvertAttribute(value, field.member.type, &converted)) {
    wanted =
        fmt::format("of type {}, got {}", ToString(field.member.type), ToString(TypeOf(value)));
  }
  if (!wanted.empty()) ThrowInvalid(fmt::format("{}: {} must be {}", who, field.name, wanted));
  try {
    field.member.set(static_cast<char*>(options) + field.offset, converted);
  } catch (const Error& error) {
    throw error.WithPrefix(field.name);
  }
}

void FieldTable::ReadInto(const std::string& who, const Setting& setting, void* options) const {
  for (const NamedAttr& attr : setting.attrs) {
    if (const FieldSpec* field = Find(attr.name)) {
      Set(*field, who, attr.value, options);
      continue;
    }
    std::vector<std::string> names;
    for (const FieldSpec& field : fields_) names.push_back(field.name);
    ThrowInvalid(
        fmt::format("{}: there is no {}{}", who, Quote(attr.name), DidYouMean(attr.name, names)));
  }
  for (const FieldSpec& field : fields_) {
    if (field.required && !setting.Find(field.name))
      ThrowInvalid(fmt::format("{}: {} is required", who, field.name));
  }
}

std::string FieldTable::OutOfRange(const FieldSpec& field, const void* options) {
  const std::optional<Attribute> value = field.member.get(MemberAt(field, options));
  return value ? OutOfRange(field, *value) : "";
}

std::string FieldTable::OutOfRange(const FieldSpec& field, const Attribute& value) {
  return field.range ? std::visit(RangeCheck{*field.range}, value) : "";
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
    std::optional<Attribute> value = field.member.get(MemberAt(field, options));
    if (value) values.push_back({field.name, std::move(*value)});
  }
  return values;
}

bool IsIdentifier(std::string_view name) {
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

FieldRange RangeFrom(double low, double high) {
  return {low, high, false, true,
          std::isinf(high) ? fmt::format("must be finite and at least {:g}", low)
                           : fmt::format("must lie in [{:g}, {:g})", low, high)};
}

FieldRange FiniteRange() {
  constexpr double kMost = std::numeric_limits<double>::max();
  return {-kMost, kMost, false, false, "must be finite"};
}

}  // namespace coracle
