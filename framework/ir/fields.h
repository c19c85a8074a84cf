#pragma once
// Field tables declare, once and next to an options struct, the fields that texts and Settings can
// set. A table yields the schema and the help of a text, its reader, the range checks, and a
// Setting of the struct.
//
//   struct MyOptions {
//     double rate = 0.1;
//     bool signs = false;
//   };
//   const auto table =
//       Fields<MyOptions>("What the kind does.")
//           .Add("rate", &MyOptions::rate, "share of the gradient", RangeFrom(0, 1))
//           .Add("signs", &MyOptions::signs, "only signs count", kRequired);
//
// Defaults come from a default-constructed MyOptions. A member is a number, a bool, a string, a
// list of these, or a std::optional of one, which has no default. Traits of a field follow its doc:
// a range, kRequired, kNoDefault or a StandIn.

#include <coracle/framework/ir/attribute.h>

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

// Converts members of one type from and to attrs. The functions are null without a struct.
struct MemberType {
  AttrType type;
  std::optional<Attribute> (*get)(const void* member);  // nullopt: the member holds no value
  void (*set)(void* member, const Attribute& value);    // throws kInvalidArgument
};

// The numbers that a field accepts, never a nan. For a list, each element must be in the range.
struct FieldRange {
  double low, high;
  bool low_open, high_open;
  std::string text;             // "must lie in [0, 1)"
  std::string whole_text = "";  // the text for integers, which are always finite; "": same as text

  bool Holds(double value) const {
    return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
  }
};

// "must lie in [low, high)" for any finite `high`; "must be finite and at least low" by default.
FieldRange RangeFrom(double low, double high = HUGE_VAL);
FieldRange PositiveRange();     // "must be positive"; allows infinity
FieldRange NotNegativeRange();  // "must be finite and not negative"
FieldRange FiniteRange();       // "must be finite"

struct FieldRequired {};
struct FieldNoDefault {};
inline constexpr FieldRequired kRequired;    // a text or Setting must give it; it has no default
inline constexpr FieldNoDefault kNoDefault;  // help and schema show none
// Names the value outside the struct that replaces an absent field: "learning_rate".
struct StandIn {
  std::string name;
};

struct FieldSpec {
  std::string name, doc;
  MemberType member;
  size_t offset;                           // of the member in the options struct
  std::optional<Attribute> default_value;  // the struct's value if the field is not set
  std::optional<FieldRange> range = std::nullopt;
  bool required = false;
  std::string stand_in = "";  // see StandIn

  void Set(FieldRange new_range);
  void Set(FieldRequired) { required = true, default_value.reset(); }
  void Set(FieldNoDefault) { default_value.reset(); }
  void Set(StandIn other) { stand_in = std::move(other.name), default_value.reset(); }
};

// The fields of one struct, without its type.
class FieldTable {
 public:
  explicit FieldTable(std::string doc = "") : doc_(std::move(doc)) {}
  // Accepts attrs of any name: the table of a kind that was registered without fields.
  static FieldTable Any(std::string doc = "");

  // Makes a table from the attrs of a Setting: their types, with their values as defaults. `docs`
  // holds (name, doc) pairs.
  static FieldTable Of(std::string doc, const Setting& defaults,
                       const std::vector<std::pair<std::string, std::string>>& docs = {});

  const std::string& doc() const { return doc_; }
  bool any() const { return any_; }
  const std::vector<FieldSpec>& fields() const { return fields_; }
  const FieldSpec* Find(std::string_view name) const;

  // Sets the member of `field` in `options`, a struct of the table. Throws kInvalidArgument for a
  // value of another type: "WHO: NAME must be a number".
  static void Set(const FieldSpec& field, const std::string& who, const Attribute& value,
                  void* options);

  // "must lie in [0, 1), got 2" if the member is outside the range of `field`; else "".
  static std::string OutOfRange(const FieldSpec& field, const void* options);
  static std::string OutOfRange(const FieldSpec& field, const Attribute& value);
  static std::string OutOfRange(const FieldRange& range, const Attribute& value);
  // The value of the member of `field` in `options`; nullopt if it holds none.
  static std::optional<Attribute> ValueOf(const FieldSpec& field, const void* options);

  // Throws kInvalidArgument for an attr of the setting that is unknown (unless any()), of another
  // type or out of range, and for a missing required attr. `who` begins the error messages.
  void CheckSetting(const std::string& who, const Setting& setting) const;
  // Throws kInvalidArgument if a member of `options` is out of range.
  void CheckRanges(const std::string& who, const void* options) const;

 protected:
  // Throws kInvalidArgument for a name that is taken or is not an identifier.
  void AddSpec(FieldSpec field);
  void ReadInto(const std::string& who, const Setting& setting, void* options) const;
  std::vector<NamedAttr> Values(const void* options) const;

 private:
  const FieldSpec& Known(const std::string& who, const std::string& name) const;
  void RequireGiven(const std::string& who, const Setting& setting) const;

  std::string doc_;
  std::vector<FieldSpec> fields_;
  bool any_ = false;
};

// The kinds of one family by name, each with the fields that a text may set.
using KindsWithFields = std::vector<std::pair<std::string, FieldTable>>;

// The fields of that kind; nullptr if the kind is unknown.
const FieldTable* FieldsOfKind(const KindsWithFields& kinds, std::string_view kind);

// Whether a text can use the name for a field: letters, digits and '_', not beginning with a digit.
bool IsIdentifier(std::string_view name);

template <class Options>
class Fields : public FieldTable {
 public:
  explicit Fields(std::string doc) : FieldTable(std::move(doc)) {}

  template <class Member, class... Traits>
  Fields& Add(std::string name, Member Options::*member, std::string doc, const Traits&... traits) {
    return Add(std::move(name), member, std::move(doc), TypeOfMember<Member>(), traits...);
  }
  // Adds a member whose type this file does not know.
  template <class Member, class... Traits>
  Fields& Add(std::string name, Member Options::*member, std::string doc, const MemberType& type,
              const Traits&... traits) {
    const Options options{};
    const auto* begin = reinterpret_cast<const char*>(&options);
    const auto* at = reinterpret_cast<const char*>(&(options.*member));
    FieldSpec field = {std::move(name), std::move(doc), type, static_cast<size_t>(at - begin),
                       type.get(at)};
    (field.Set(traits), ...);
    AddSpec(std::move(field));
    return *this;
  }

  // Throws kInvalidArgument for an unknown attr (naming the nearest known one), an attr of another
  // type and a missing required attr. Does not check ranges. `who` begins the error messages.
  Options Read(const std::string& who, const Setting& setting) const {
    Options options{};
    ReadInto(who, setting, &options);
    return options;
  }
  // Throws kInvalidArgument if a member is out of range: "WHO: NAME must lie in [0, 1), got 2".
  // Returns the options.
  const Options& Check(const std::string& who, const Options& options) const {
    CheckRanges(who, &options);
    return options;
  }
  // Saves all fields that have a value.
  Setting Save(std::string kind, const Options& options) const {
    return {std::move(kind), Values(&options)};
  }

 private:
  template <class T>
  struct Plain {
    using Type = T;
    static std::optional<Attribute> Get(const void* member) {
      return Attribute(*static_cast<const T*>(member));
    }
    static void Set(void* member, const Attribute& value) {
      *static_cast<T*>(member) = AttributeAs<T>(value);
    }
  };
  template <class T>
  struct Plain<std::optional<T>> {
    using Type = T;
    static std::optional<Attribute> Get(const void* member) {
      const auto& value = *static_cast<const std::optional<T>*>(member);
      return value ? std::optional<Attribute>(*value) : std::nullopt;
    }
    static void Set(void* member, const Attribute& value) {
      *static_cast<std::optional<T>*>(member) = AttributeAs<T>(value);
    }
  };
  template <class Member>
  static MemberType TypeOfMember() {
    using P = Plain<Member>;
    return {AttrTypeOf<typename P::Type>(), P::Get, P::Set};
  }
};

}  // namespace coracle
