#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/op.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>

namespace coracle {
namespace {

template <class T>
struct IsVector : std::false_type {};
template <class E>
struct IsVector<std::vector<E>> : std::true_type {
  using Element = E;
};

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T>;

template <class From, class To>
std::optional<To> ConvertNumber(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<To, bool>) {
    if (value == From(0)) return false;
    if (value == From(1)) return true;
    return std::nullopt;
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_floating_point_v<From>) {
    // Only whole numbers become integers. 2^63 is exact in both float types.
    if (!(value >= -0x1p63 && value < 0x1p63) || value != std::floor(value)) return std::nullopt;
    return ConvertNumber<int64_t, To>(static_cast<int64_t>(value));
  } else {
    int64_t wide = static_cast<int64_t>(value);
    if (wide < std::numeric_limits<To>::min() || wide > std::numeric_limits<To>::max())
      return std::nullopt;
    return static_cast<To>(wide);
  }
}

template <class To, class From>
std::optional<To> Convert(const From& from) {
  if constexpr (std::is_same_v<From, To>) {
    return from;
  } else if constexpr (std::is_same_v<From, Scalar> && kIsNumber<To>) {
    return std::visit(
        [](const auto& v) -> std::optional<To> {
          if constexpr (kIsNumber<std::decay_t<decltype(v)>>) return Convert<To>(v);
          return std::nullopt;
        },
        from.value);
  } else if constexpr (kIsNumber<From> && kIsNumber<To>) {
    return ConvertNumber<From, To>(from);
  } else if constexpr (std::is_same_v<To, Scalar> && kIsNumber<From>) {
    if constexpr (std::is_same_v<From, bool>)
      return Scalar{from};
    else if constexpr (std::is_integral_v<From>)
      return Scalar{static_cast<int64_t>(from)};
    else
      return Scalar{static_cast<double>(from)};
  } else if constexpr (IsVector<From>::value && IsVector<To>::value) {
    To list;
    list.reserve(from.size());
    for (const auto& element : from) {
      using E = typename IsVector<From>::Element;
      auto converted = Convert<typename IsVector<To>::Element, E>(static_cast<const E&>(element));
      if (!converted) return std::nullopt;
      list.push_back(std::move(*converted));
    }
    return list;
  } else if constexpr (IsVector<To>::value && kIsNumber<From>) {
    auto converted = Convert<typename IsVector<To>::Element>(from);
    if (!converted) return std::nullopt;
    return To{std::move(*converted)};
  } else {
    return std::nullopt;
  }
}

template <class To, class From>
bool ConvertInto(const From& from, Attribute* out) {
  auto converted = Convert<To>(from);
  if (!converted) return false;
  *out = std::move(*converted);
  return true;
}

std::string FormatScalar(const Scalar& scalar) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, Complex>)
          return fmt::format("({}, {})", v.real, v.imag);
        else
          return fmt::format("{}", v);
      },
      scalar.value);
}

template <class T>
std::string Format(const T& value) {
  if constexpr (IsVector<T>::value) {
    std::string out = "[";
    for (const auto& element : value) {
      if (out.size() > 1) out += ", ";
      out += Format<typename IsVector<T>::Element>(element);
    }
    return out + "]";
  } else if constexpr (std::is_same_v<T, std::string>) {
    std::string quoted = Quote(value, 1000);
    quoted.front() = quoted.back() = '"';
    return quoted;
  } else if constexpr (std::is_same_v<T, BlockRef>) {
    return fmt::format("block {}", value.idx);
  } else if constexpr (std::is_same_v<T, VarRef>) {
    const std::string quoted = Quote(value.name, 1000);  // longer if it needs escapes
    return quoted.size() == value.name.size() + 2 ? value.name : quoted;
  } else if constexpr (std::is_same_v<T, Scalar>) {
    return FormatScalar(value);
  } else if constexpr (std::is_same_v<T, RawAttr>) {
    return fmt::format("<{} bytes of an unknown kind>", value.bytes.size());
  } else {
    return fmt::format("{}", value);
  }
}

}  // namespace

Attribute::Attribute() = default;
Attribute::Attribute(const Attribute& other) = default;
Attribute::Attribute(Attribute&& other) noexcept = default;
Attribute& Attribute::operator=(const Attribute& other) = default;
Attribute& Attribute::operator=(Attribute&& other) noexcept = default;
Attribute::~Attribute() = default;

const char* ToString(AttrType type) {
  static constexpr const char* kNames[] = {"INT",     "FLOAT",   "STRING",   "INTS",  "FLOATS",
                                           "STRINGS", "BOOLEAN", "BOOLEANS", "BLOCK", "LONG",
                                           "BLOCKS",  "LONGS",   "FLOAT64S", "VAR",   "VARS",
                                           "FLOAT64", "SCALAR",  "SCALARS",  "RAW"};
  auto index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

bool ConvertAttribute(const Attribute& from, AttrType to, Attribute* out) {
  Required(out, "the result of ConvertAttribute");
  if (TypeOf(from) == to) {
    *out = from;
    return true;
  }
  return std::visit(
      [&](const auto& value) {
        switch (to) {
          case AttrType::kInt:
            return ConvertInto<int32_t>(value, out);
          case AttrType::kFloat:
            return ConvertInto<float>(value, out);
          case AttrType::kString:
            return ConvertInto<std::string>(value, out);
          case AttrType::kInts:
            return ConvertInto<std::vector<int32_t>>(value, out);
          case AttrType::kFloats:
            return ConvertInto<std::vector<float>>(value, out);
          case AttrType::kStrings:
            return ConvertInto<std::vector<std::string>>(value, out);
          case AttrType::kBoolean:
            return ConvertInto<bool>(value, out);
          case AttrType::kBooleans:
            return ConvertInto<std::vector<bool>>(value, out);
          case AttrType::kBlock:
            return ConvertInto<BlockRef>(value, out);
          case AttrType::kLong:
            return ConvertInto<int64_t>(value, out);
          case AttrType::kBlocks:
            return ConvertInto<std::vector<BlockRef>>(value, out);
          case AttrType::kLongs:
            return ConvertInto<std::vector<int64_t>>(value, out);
          case AttrType::kFloat64s:
            return ConvertInto<std::vector<double>>(value, out);
          case AttrType::kVar:
            return ConvertInto<VarRef>(value, out);
          case AttrType::kVars:
            return ConvertInto<std::vector<VarRef>>(value, out);
          case AttrType::kFloat64:
            return ConvertInto<double>(value, out);
          case AttrType::kScalar:
            return ConvertInto<Scalar>(value, out);
          case AttrType::kScalars:
            return ConvertInto<std::vector<Scalar>>(value, out);
          case AttrType::kRaw:
            return false;
        }
        return false;
      },
      from);
}

std::string ToString(const Attribute& attribute) {
  return std::visit([](const auto& v) { return Format<std::decay_t<decltype(v)>>(v); }, attribute);
}

const Attribute* Setting::Find(const std::string& name) const {
  for (const NamedAttr& attr : attrs) {
    if (attr.name == name) return &attr.value;
  }
  return nullptr;
}

}  // namespace coracle
