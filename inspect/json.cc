#include <coracle/framework/base/text.h>
#include <coracle/inspect/json.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <type_traits>

namespace coracle::inline internal {
namespace {

constexpr int64_t kExactInDouble = int64_t{1} << 53;

template <class T>
Json Number(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // The shortest text of a float, read as a double, differs from the float.
  const std::string shortest = fmt::format("{}", value);
  double number = 0;
  std::from_chars(shortest.data(), shortest.data() + shortest.size(), number);
  return number;
}

Json Of(int32_t value) { return value; }
Json Of(int64_t value) { return JsonNumber(value); }
Json Of(float value) { return JsonNumber(value); }
Json Of(double value) { return JsonNumber(value); }
Json Of(bool value) { return value; }
Json Of(const std::string& value) { return JsonString(value); }
Json Of(const BlockRef& value) { return {{"block", value.idx}}; }
Json Of(const VarRef& value) { return {{"var", JsonString(value.name)}}; }
Json Of(const Complex& value) {
  return {{"re", JsonNumber(value.real)}, {"im", JsonNumber(value.imag)}};
}
Json Of(const Scalar& value) {
  return std::visit([](const auto& held) { return Of(held); }, value.value);
}
Json Of(const RawAttr& value) {
  std::string digits;
  for (char byte : value.bytes)
    fmt::format_to(std::back_inserter(digits), "{:02x}", static_cast<unsigned char>(byte));
  return {{"bytes", digits}};
}
template <class T>
Json Of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(Of(value));
  return list;
}

}  // namespace

Json JsonDocument(const std::string& kind) {
  return {{"format", "coracle." + kind}, {"version", 1}};
}

std::string JsonText(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string JsonLine(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json JsonString(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    if (bytes > 0)
      out.append(text.substr(0, bytes));
    else
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[0]));
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return out;
}

Json JsonNumber(double value) { return Number(value); }
Json JsonNumber(float value) { return Number(value); }
Json JsonNumber(int64_t value) {
  if (value >= -kExactInDouble && value <= kExactInDouble) return value;
  return std::to_string(value);
}

Json JsonShape(const Shape& shape) {
  Json dims = Json::array();
  for (int64_t dim : shape) dims.push_back(JsonNumber(dim));
  return dims;
}

Json JsonAttribute(const Attribute& attribute) {
  return std::visit([](const auto& value) { return Of(value); },
                    static_cast<const AttributeVariant&>(attribute));
}

Json JsonSetting(const Setting& setting) {
  Json attrs = Json::object();
  for (const NamedAttr& attr : setting.attrs)
    if (setting.Find(attr.name) == &attr.value)
      AddMember(attrs, attr.name, JsonAttribute(attr.value));
  return {{"kind", JsonString(setting.kind)}, {"attrs", std::move(attrs)}};
}

void AddMember(Json& object, std::string_view name, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(JsonString(name).get<std::string>(),
                                                 std::move(value));
}

}  // namespace coracle::inline internal
