#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/attr_limits.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <variant>

namespace coracle::inline internal {
namespace {

constexpr size_t kMaxValueText = 200;

bool IsNumberAsText(const AttrDef& def) {
  if (def.type != AttrType::kString || !def.default_value) return false;
  double unused = 0;
  return ParseDouble(std::get<std::string>(*def.default_value), &unused);
}

// Whether the value is the bound rounded to float: 1e-3f exceeds 1e-3 and yet counts as inside
// [0, 1e-3]. (Zero does not count as a rounded bound: a value that must be at least 1e-50 must
// not be 0.)
template <class T>
bool IsRounded(double bound, T value) {
  if (!std::is_same_v<T, float> || value == 0) return false;
  return std::abs(bound) <= std::numeric_limits<float>::max() &&
         static_cast<double>(static_cast<float>(bound)) == static_cast<double>(value);
}

template <class T>
bool InRange(const AttrDef& def, T given) {
  const auto value = static_cast<double>(given);
  return !std::isnan(value) && (!def.min || value >= *def.min || IsRounded(*def.min, given)) &&
         (!def.max || value <= *def.max || IsRounded(*def.max, given));
}

// Checks numbers and lists of numbers; other types have no range.
struct RangeHolds {
  const AttrDef& def;

  template <class T>
  bool operator()(const T& value) const {
    if constexpr (std::is_arithmetic_v<T>) return InRange(def, value);
    return true;
  }
  template <class T>
  bool operator()(const std::vector<T>& values) const {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
      return std::all_of(values.begin(), values.end(), [&](T v) { return InRange(def, v); });
    return true;
  }
};

bool HasLimits(const AttrDef& def) { return def.min || def.max || !def.one_of.empty(); }

bool IsOneOf(const AttrDef& def, const Attribute& value) {
  const auto* text = std::get_if<std::string>(&value);
  return !text || def.one_of.empty() ||
         std::find(def.one_of.begin(), def.one_of.end(), *text) != def.one_of.end();
}

bool IsWithinLimits(const AttrDef& def, const Attribute& value) {
  if ((def.min || def.max) && !std::visit(RangeHolds{def}, value)) return false;
  return IsOneOf(def, value);
}

std::string RangeText(const AttrDef& def) {
  if (def.min && def.max) return fmt::format("lie in [{}, {}]", *def.min, *def.max);
  if (def.min) return fmt::format("be at least {}", *def.min);
  return fmt::format("be at most {}", *def.max);
}

}  // namespace

std::string BriefValue(const Attribute& value) {
  std::string text = ToString(value);
  if (text.size() > kMaxValueText) text.replace(kMaxValueText, std::string::npos, "...");
  return text;
}

bool ConvertAttr(const AttrDef& def, const Attribute& value, Attribute* converted) {
  if (ConvertAttribute(value, def.type, converted)) return true;
  if (!IsNumberAsText(def)) return false;
  if (const auto* number = std::get_if<float>(&value))
    *converted = fmt::format("{}", *number);
  else if (const auto* wide = std::get_if<double>(&value))
    *converted = fmt::format("{}", *wide);
  else
    return false;
  return true;
}

std::string ViolatedLimit(const AttrDef& def, const Attribute& value) {
  if (!HasLimits(def) || IsWithinLimits(def, value)) return "";
  if (IsOneOf(def, value)) return fmt::format("{}, got {}", RangeText(def), BriefValue(value));
  const auto& text = std::get<std::string>(value);
  return fmt::format("be one of {}, got {}{}", Join(def.one_of, ", "), Quote(text, kMaxValueText),
                     DidYouMean(text, def.one_of));
}

void RequireLimits(const OpSpec& spec, const OpDesc& op) {
  for (const AttrDef& def : spec.attrs) {
    if (!HasLimits(def)) continue;
    const Attribute* given = op.FindAttr(def.name);
    if (!given) continue;
    Attribute converted;
    if (TypeOf(*given) != def.type) {
      if (!ConvertAttr(def, *given, &converted)) continue;
      given = &converted;
    }
    if (IsWithinLimits(def, *given)) continue;
    ThrowInvalid(
        fmt::format("{}: attr {} must {}", spec.type, def.name, ViolatedLimit(def, *given)),
        "  " + Locate(op));
  }
}

}  // namespace coracle::inline internal
