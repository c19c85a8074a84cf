#pragma once
// Attribute values of ops. The variant's index is AttrType of framework.proto.

#include <coracle/framework/base/error.h>

#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace coracle {

enum class AttrType : int32_t {
  kInt = 0,
  kFloat = 1,
  kString = 2,
  kInts = 3,
  kFloats = 4,
  kStrings = 5,
  kBoolean = 6,
  kBooleans = 7,
  kBlock = 8,
  kLong = 9,
  kBlocks = 10,
  kLongs = 11,
  kFloat64s = 12,
  kVar = 13,
  kVars = 14,
  kFloat64 = 15,
  kScalar = 16,
  kScalars = 17,
  kRaw = 18,  // not on the wire: an attr of a kind unknown to this version
};

const char* ToString(AttrType type);  // framework.proto's enumerator: "INT", "FLOATS", ...

struct BlockRef {  // index of a sub-block
  int32_t idx = 0;
  bool operator==(const BlockRef&) const = default;
};

struct VarRef {  // name of a variable
  std::string name;
  bool operator==(const VarRef&) const = default;
};

struct Scalar {
  std::variant<bool, int64_t, double, std::complex<double>> value;
  bool operator==(const Scalar&) const = default;
};

struct RawAttr {  // the serialised OpDesc.Attr message, kept as it was read
  std::string bytes;
  bool operator==(const RawAttr&) const = default;
};

using AttributeVariant =
    std::variant<int32_t, float, std::string, std::vector<int32_t>, std::vector<float>,
                 std::vector<std::string>, bool, std::vector<bool>, BlockRef, int64_t,
                 std::vector<BlockRef>, std::vector<int64_t>, std::vector<double>, VarRef,
                 std::vector<VarRef>, double, Scalar, std::vector<Scalar>, RawAttr>;

// A variant whose copies and destructor are compiled in attribute.cc. Instantiating them in every
// file that uses attrs would take a good part of the build time.
class Attribute : public AttributeVariant {
 public:
  using AttributeVariant::AttributeVariant;
  Attribute();  // 0
  Attribute(const Attribute& other);
  Attribute(Attribute&& other) noexcept;
  Attribute& operator=(const Attribute& other);
  Attribute& operator=(Attribute&& other) noexcept;
  ~Attribute();
};

inline AttrType TypeOf(const Attribute& attribute) {
  return static_cast<AttrType>(attribute.index());
}

template <class T>
constexpr AttrType AttrTypeOf() {
  if constexpr (std::is_same_v<T, int32_t>)
    return AttrType::kInt;
  else if constexpr (std::is_same_v<T, float>)
    return AttrType::kFloat;
  else if constexpr (std::is_same_v<T, std::string>)
    return AttrType::kString;
  else if constexpr (std::is_same_v<T, std::vector<int32_t>>)
    return AttrType::kInts;
  else if constexpr (std::is_same_v<T, std::vector<float>>)
    return AttrType::kFloats;
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return AttrType::kStrings;
  else if constexpr (std::is_same_v<T, bool>)
    return AttrType::kBoolean;
  else if constexpr (std::is_same_v<T, std::vector<bool>>)
    return AttrType::kBooleans;
  else if constexpr (std::is_same_v<T, BlockRef>)
    return AttrType::kBlock;
  else if constexpr (std::is_same_v<T, int64_t>)
    return AttrType::kLong;
  else if constexpr (std::is_same_v<T, std::vector<BlockRef>>)
    return AttrType::kBlocks;
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return AttrType::kLongs;
  else if constexpr (std::is_same_v<T, std::vector<double>>)
    return AttrType::kFloat64s;
  else if constexpr (std::is_same_v<T, VarRef>)
    return AttrType::kVar;
  else if constexpr (std::is_same_v<T, std::vector<VarRef>>)
    return AttrType::kVars;
  else if constexpr (std::is_same_v<T, double>)
    return AttrType::kFloat64;
  else if constexpr (std::is_same_v<T, Scalar>)
    return AttrType::kScalar;
  else if constexpr (std::is_same_v<T, std::vector<Scalar>>)
    return AttrType::kScalars;
  else
    static_assert(sizeof(T) == 0, "not an attribute type");
}

// Converts a value to another type if its meaning is kept: between integers (in range), between
// bool and the integers 0 and 1, between floats of any width, element by element for lists, from
// one number to a list of one, from an empty list to any empty list, and from a float to its
// text. Returns false, and leaves *out unchanged, if no such conversion exists. Different
// versions of Paddle write the same attr with different types, so attrs are converted on access,
// never on reading.
bool ConvertAttribute(const Attribute& from, AttrType to, Attribute* out);

// The attribute as T, converted as above; throws kInvalidArgument naming both types.
template <class T>
T AttributeAs(const Attribute& attribute) {
  if (const T* same = std::get_if<T>(&attribute)) return *same;
  Attribute converted;
  if (!ConvertAttribute(attribute, AttrTypeOf<T>(), &converted)) {
    ThrowInvalid(std::string("an attr of type ") + ToString(TypeOf(attribute)) + " was read as " +
                 ToString(AttrTypeOf<T>()));
  }
  return std::get<T>(std::move(converted));
}

// The value as a dump shows it: 0.5, "SAME", [1, 2], block 1.
std::string ToString(const Attribute& attribute);

struct NamedAttr {
  std::string name;
  Attribute value;
  bool operator==(const NamedAttr&) const = default;
};

// A kind with its parameters: the form in which a program keeps initializers, regularizers
// and clips.
struct Setting {
  std::string kind;  // "xavier", "l2_decay", "by_value", ...
  std::vector<NamedAttr> attrs;

  const Attribute* Find(const std::string& name) const;
  template <class T>
  T Get(const std::string& name, T otherwise) const {
    const Attribute* found = Find(name);
    return found ? AttributeAs<T>(*found) : otherwise;
  }
  bool operator==(const Setting&) const = default;
};

}  // namespace coracle
