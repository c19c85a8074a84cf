#include <coracle/framework/base/error.h>
#include <coracle/framework/base/subnormals.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/framework/tensor/string_arena.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/string_numbers.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>
#include <type_traits>

namespace coracle::inline internal {
namespace {

constexpr int kMostDigits = 17;

// The shortest digits of |value| as T, d or d.ddd, and the exponent of ten.
struct Digits {
  std::string digits;
  int exponent = 0;
};

// Splits "1.25e-07".
Digits SplitScientific(std::string_view text) {
  Digits result;
  const size_t e = text.find('e');
  for (const char c : text.substr(0, e)) {
    if (c != '.') result.digits += c;
  }
  std::string_view exponent = text.substr(e + 1);
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  std::from_chars(exponent.data(), exponent.data() + exponent.size(), result.exponent);
  return result;
}

template <class T>
Digits ShortestDigits(T value) {
  char text[64];
  char* end = text + sizeof(text);
  if constexpr (std::is_floating_point_v<T>) {
    end = std::to_chars(text, end, value, std::chars_format::scientific).ptr;
  } else {  // the standard library knows no 16-bit floats
    const auto wide = static_cast<double>(static_cast<float>(value));
    for (int precision = 0; precision <= kMostDigits; ++precision) {
      char* last =
          std::to_chars(text, text + sizeof(text), wide, std::chars_format::scientific, precision)
              .ptr;
      double back = 0;
      std::from_chars(text, last, back);
      end = last;
      if (ToHalf<T>(back).bits == value.bits) break;
    }
  }
  return SplitScientific({text, static_cast<size_t>(end - text)});
}

// Plain notation from 1e-4 up to 1e16, else scientific.
std::string Written(const Digits& number) {
  const auto count = static_cast<int>(number.digits.size());
  const std::string& digits = number.digits;
  const int exponent = number.exponent;
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}e{}{:02}", digits[0], count > 1 ? "." : "", digits.substr(1),
                       exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return digits.substr(0, static_cast<size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<size_t>(exponent) + 1);
}

template <class T>
std::string TextOf(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "1" : "0";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    const auto wide = static_cast<double>(static_cast<Wide<T>>(value));
    if (std::isnan(wide)) return "nan";
    const std::string sign = std::signbit(wide) ? "-" : "";
    if (std::isinf(wide)) return sign + "inf";
    if (wide == 0) return sign + "0.0";
    return sign + Written(ShortestDigits(std::signbit(wide) ? static_cast<T>(-value) : value));
  }
}

[[noreturn]] void ThrowNoNumber(std::string_view text) {
  ThrowInvalid(fmt::format("cast: the text {} spells no number", Quote(std::string(text))));
}

// The power of ten of a number's first digit that is not 0. `text` spells a decimal number.
int64_t DecimalExponent(std::string_view text) {
  const size_t e = std::min(text.find_first_of("eE"), text.size());
  const std::string_view digits = text.substr(0, e);
  const auto point = static_cast<int64_t>(std::min(digits.find('.'), digits.size()));
  const auto first = static_cast<int64_t>(std::min(digits.find_first_not_of("0."), digits.size()));
  const int64_t place = first < point ? point - first - 1 : point - first;
  if (e == text.size()) return place;
  std::string_view written = text.substr(e + 1);
  if (written.starts_with('+')) written.remove_prefix(1);
  int64_t exponent = 0;
  const auto [end, error] =
      std::from_chars(written.data(), written.data() + written.size(), exponent);
  constexpr int64_t kLarge = int64_t{1} << 40;  // beyond any length of a text
  if (error != std::errc()) exponent = written.starts_with('-') ? -kLarge : kLarge;
  return place + std::clamp(exponent, -kLarge, kLarge);
}

// Parses all of `text` (without a sign). Returns false if it is no number. Numbers out of range
// become infinite or 0.
template <class T>
bool ParseFloat(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (end != text.data() + text.size() || text.empty()) return false;
  if (error != std::errc::result_out_of_range) return error == std::errc();
  *value = DecimalExponent(text) < 0 ? T(0) : std::numeric_limits<T>::infinity();
  return true;
}

// A text as its sign and the rest.
struct Signed {
  bool negative = false;
  std::string_view rest;
};
Signed SplitSign(std::string_view text) {
  text = Trim(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  // from_chars would take a second minus sign, and nan with letters in parentheses.
  if (text.starts_with('-') || text.find('(') != text.npos) text = {};
  return {negative, text};
}

template <class T>
T NumberIn(std::string_view text) {
  const Signed number = SplitSign(text);
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    uint64_t digits = 0;
    const char* end = number.rest.data() + number.rest.size();
    const auto [last, error] = std::from_chars(number.rest.data(), end, digits);
    if (last == end && !number.rest.empty() && error == std::errc()) {
      constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<T>::max());
      if (!number.negative) return static_cast<T>(std::min(digits, kMost));
      if constexpr (std::is_unsigned_v<T>) return T(0);
      return digits > kMost ? std::numeric_limits<T>::min()
                            : static_cast<T>(-static_cast<int64_t>(digits));
    }
  }
  if constexpr (std::is_same_v<T, float>) {  // rounded once
    float value = 0;
    if (!ParseFloat(number.rest, &value)) ThrowNoNumber(text);
    return number.negative ? -value : value;
  } else {
    double value = 0;
    if (!ParseFloat(number.rest, &value)) ThrowNoNumber(text);
    if (number.negative) value = -value;
    if constexpr (std::is_same_v<T, bool>)
      return value != 0;
    else if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>)
      return ToHalf<T>(value);
    else
      return SaturateTo<T>(value);
  }
}

template <class F>
void DispatchNumber(DType dtype, F&& f) {
  if (dtype == DType::kUInt64) return f.template operator()<uint64_t>();
  DispatchDType(dtype, std::forward<F>(f));
}

}  // namespace

void NumbersToStrings(DType dtype, const void* from, int64_t n, StringRef* to) {
  StringArena& arena = StringArena::OfRun();
  const ScopedSubnormals exact(false);  // a text says the number that is there
  DispatchNumber(dtype, [&]<class T>() {
    const T* values = static_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) to[i] = arena.Add(TextOf(values[i]));
  });
}

void StringsToNumbers(const StringRef* from, int64_t n, DType dtype, void* to) {
  const ScopedSubnormals exact(false);
  DispatchNumber(dtype, [&]<class T>() {
    T* values = static_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) values[i] = NumberIn<T>(from[i].view());
  });
}

}  // namespace coracle::inline internal
