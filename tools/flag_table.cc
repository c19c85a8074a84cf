#include <coracle/framework/base/text.h>
#include <coracle/tools/command.h>
#include <coracle/tools/flag_table.h>
#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

namespace coracle::tools {
namespace {

std::string WordsOf(const OneOf& words) {
  std::vector<std::string> names;
  for (const Enumerator& word : words.values) names.push_back(word.name);
  return Join(names, " or ");
}

// "text or pbtxt", "a whole number": the form of a value, for messages.
std::string Expected(const FieldSpec& flag) {
  if (flag.one_of) return WordsOf(*flag.one_of);
  switch (flag.member.type) {
    case AttrType::kBoolean:
      return "true or false";
    case AttrType::kFloat:
    case AttrType::kFloat64:
      return "a number";
    case AttrType::kInt:
      return "a whole number below 2147483648";
    case AttrType::kLong:
      return flag.member.is_unsigned ? "a whole number that is not negative" : "a whole number";
    default:
      return "text";
  }
}

std::optional<Attribute> BoolFrom(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* word : {"true", "t", "yes", "y", "1"})
    if (text == word) return Attribute(true);
  for (const char* word : {"false", "f", "no", "n", "0"})
    if (text == word) return Attribute(false);
  return std::nullopt;
}

std::optional<Attribute> WholeFrom(const FieldSpec& flag, const std::string& text) {
  if (flag.member.is_unsigned) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return Attribute(static_cast<int64_t>(value));
  }
  int64_t value = 0;
  if (!ParseInt64(text, &value)) return std::nullopt;
  if (flag.member.type == AttrType::kLong) return Attribute(value);
  constexpr auto kInt = std::numeric_limits<int32_t>();
  if (value < kInt.min() || value > kInt.max()) return std::nullopt;
  return Attribute(static_cast<int32_t>(value));
}

std::optional<Attribute> ValueFrom(const FieldSpec& flag, const std::string& text) {
  if (flag.one_of) {
    for (const Enumerator& word : flag.one_of->values)
      if (word.name == text) return Attribute(word.value);
    return std::nullopt;
  }
  double number = 0;
  switch (flag.member.type) {
    case AttrType::kBoolean:
      return BoolFrom(text);
    case AttrType::kInt:
    case AttrType::kLong:
      return WholeFrom(flag, text);
    case AttrType::kFloat:
    case AttrType::kFloat64:
      if (!ParseDouble(text, &number)) return std::nullopt;
      return flag.member.type == AttrType::kFloat ? Attribute(static_cast<float>(number))
                                                  : Attribute(number);
    case AttrType::kStrings: {
      std::vector<std::string> parts;
      for (std::string& part : Split(text, ','))
        if (!part.empty()) parts.push_back(std::move(part));
      return Attribute(std::move(parts));
    }
    default:
      return Attribute(text);
  }
}

// The default of a flag as help shows it; "" for one that says nothing.
std::string DefaultText(const FieldSpec& flag) {
  if (!flag.default_value || IsSwitch(flag)) return "";
  if (flag.one_of) return WordOf(*flag.one_of, std::get<int32_t>(*flag.default_value));
  if (const auto* text = std::get_if<std::string>(&*flag.default_value)) return *text;
  if (const auto* number = std::get_if<double>(&*flag.default_value))
    return *number == 0 ? "" : fmt::format("{}", *number);
  const std::string text = ToString(*flag.default_value);
  return text == "0" || text == "-1" || text == "[]" ? "" : text;
}

}  // namespace

MemberType AppendedTexts() {
  return {
      AttrType::kString, [](const void*) -> std::optional<Attribute> { return std::nullopt; },
      [](void* member, const Attribute& value) {
        static_cast<std::vector<std::string>*>(member)->push_back(AttributeAs<std::string>(value));
      }};
}

FieldRange ZeroOrMore() { return {0, HUGE_VAL, false, false, "must not be negative"}; }

bool IsSwitch(const FieldSpec& flag) {
  return flag.member.type == AttrType::kBoolean && !flag.one_of;
}

const std::string& WordOf(const OneOf& words, int32_t value) {
  for (const Enumerator& word : words.values)
    if (word.value == value) return word.name;
  throw InternalError("an enum of a flag has a value without a word");
}

FlagHelp HelpOf(const FieldSpec& flag) {
  std::string text = flag.doc;
  const bool is_text =
      flag.member.type == AttrType::kString || flag.member.type == AttrType::kStrings;
  std::string word = is_text ? "TEXT" : "N";
  const size_t begin = text.find('`'), end = text.find('`', begin + 1);
  if (begin != text.npos && end != text.npos) {
    word = text.substr(begin + 1, end - begin - 1);
    text = text.substr(0, begin) + word + text.substr(end + 1);
  }
  if (const std::string value = DefaultText(flag); !value.empty())
    text += fmt::format(" (default: {})", value);
  return {flag.name, IsSwitch(flag) ? "" : "=" + word, text};
}

void SetFlags(const FieldTable& table, const GivenFlags& given, void* flags) {
  for (const auto& [name, text] : given) {
    const FieldSpec* flag = table.Find(name);
    if (!flag) throw InternalError("a command does not have the flag " + name);
    const std::optional<Attribute> value = ValueFrom(*flag, text);
    if (!value)
      throw UsageError(fmt::format("--{} takes {}, got {}", name, Expected(*flag), Quote(text)));
    const std::string wrong = FieldTable::OutOfRange(*flag, *value);
    if (!wrong.empty()) throw UsageError(fmt::format("--{} {}", name, wrong));
    FieldTable::Set(*flag, "--" + name, *value, flags);
  }
}

}  // namespace coracle::tools
