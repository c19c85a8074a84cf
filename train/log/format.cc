#include <coracle/framework/base/text.h>
#include <coracle/framework/base/utf8.h>
#include <coracle/train/log/format.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace coracle::inline internal {
namespace {

std::string General(double value, int digits) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{:.{}g}", value, digits);
  if (const size_t plus = text.find("e+"); plus != std::string::npos) text.erase(plus + 1, 1);
  return text;
}

}  // namespace

std::string FormatNumber(double value) { return General(value, 6); }

std::string FormatShort(double value) {
  const double size = std::abs(value);
  if (size == 0 || (size >= 1e-3 && size < 1e6)) return fmt::format("{:.4f}", value);
  return General(value, 4);
}

std::string FormatValues(const std::vector<NamedValue>& values, std::string (*format)(double)) {
  std::string text;
  for (const NamedValue& value : values)
    text += fmt::format(" {}={}", PrintableLine(value.name), format(value.value));
  return text;
}

std::string FormatConfusion(const ConfusionMatrix& confusion, std::string_view elsewhere) {
  constexpr int64_t kMostClasses = 30;
  constexpr size_t kNameWidth = 32;
  std::string text = fmt::format("{}: ", PrintableLine(confusion.name));
  if (confusion.classes > kMostClasses)
    return text + fmt::format("{} classes, {}", confusion.classes, elsewhere);
  text += "rows are labels, columns are answers";
  std::vector<std::string> names;
  size_t width = 0, digits = 1;
  for (int64_t c = 0; c < confusion.classes; ++c) {
    std::string name = std::to_string(c);
    digits = std::max(digits, name.size());
    const auto index = static_cast<size_t>(c);
    if (!confusion.class_names.empty() && confusion.class_names[index] != name)
      name += ": " + PrintableLine(confusion.class_names[index]);
    names.emplace_back(CutToWidth(name, kNameWidth));
    width = std::max(width, DisplayWidth(names.back()));
  }
  for (const int64_t count : confusion.counts)
    digits = std::max(digits, std::to_string(count).size());
  text += fmt::format("\n  {:<{}}", "", width);
  for (int64_t c = 0; c < confusion.classes; ++c) text += fmt::format(" {:>{}}", c, digits);
  auto count = confusion.counts.begin();
  for (const std::string& name : names) {
    text += "\n  " + name + std::string(width - DisplayWidth(name), ' ');
    for (int64_t c = 0; c < confusion.classes; ++c)
      text += fmt::format(" {:>{}}", *count++, digits);
  }
  return text;
}

std::string Utf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string QuoteIfNeeded(std::string_view name, size_t max_length) {
  const std::string quoted = Quote(name, max_length);
  return quoted.size() == name.size() + 2 ? std::string(name) : quoted;
}

}  // namespace coracle::inline internal
