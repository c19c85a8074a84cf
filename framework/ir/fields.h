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
// Defaults come from a default-constructed MyOptions. A member is a number, a bool, a string, an
// enum (with OneOf), a list of these, or a std::optional of one, which has no default. Traits of a
// field follow its doc: a range, kRequired, kNoDefault, a StandIn, OneOf, FieldExample or
// FieldNumber. Nested, Group and Choice declare fields that hold fields.

#include <coracle/framework/ir/op.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

inline namespace internal {
class FieldPlaces;  // field_places.h
}
class FieldTable;

// Converts members of one type from and to attrs. The functions are null without a struct.
struct MemberType {
  AttrType type;
  std::optional<Attribute> (*get)(const void* member);  // nullopt: the member holds no value
  void (*set)(void* member, const Attribute& value);    // throws kInvalidArgument
  bool is_unsigned = false;                             // the attr holds the bits of a uint64
};

// The numbers that a field accepts, never a nan. For a list, each element must be in the range.
struct FieldRange {
  double low, high;
  bool low_open, high_open;
  std::string text;             // "must lie in [0, 1)"
  std::string whole_text = "";  // the text for integers, which are always finite; "": same as text
  std::string high_text = "";   // the text for a value above `high`; "": same as text

  bool Holds(double value) const {
    return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
  }
};

// "must lie in [low, high)" for any finite `high`; "must be finite and at least low" by default.
FieldRange RangeFrom(double low, double high = HUGE_VAL);
FieldRange ClosedRange(double low, double high);   // "must be in [low, high]"
FieldRange LimitedRange(double low, double high);  // "must be at least low"; above high: "at most"
FieldRange OpenRange(double low, double high);     // "must lie in (low, high)"
FieldRange PositiveRange();                        // "must be positive"; allows infinity
FieldRange NotNegativeRange();                     // "must be finite and not negative"
FieldRange FiniteRange();                          // "must be finite"

struct FieldRequired {};
struct FieldNoDefault {};
inline constexpr FieldRequired kRequired;    // a text or Setting must give it; it has no default
inline constexpr FieldNoDefault kNoDefault;  // help and schema show none
// Names the value outside the struct that replaces an absent field: "learning_rate".
struct StandIn {
  std::string name;
};
// Statements of the enclosing message that give the field, if help could not invent valid ones.
struct FieldExample {
  std::string text;
};
// The number in the schema; the fields that follow count on from it. By default they count from 1.
struct FieldNumber {
  int number;
};

// A word of a text for a value of an enum.
struct Enumerator {
  template <class T>
  Enumerator(std::string name, T value, std::string doc = "")
      : name(std::move(name)), value(static_cast<int32_t>(value)), doc(std::move(doc)) {}
  std::string name;
  int32_t value;
  std::string doc;
};
// The words that a field of an enum accepts. `type` names the enum in a schema: "Goal", or
// "MetricConfig.Kind" inside the message MetricConfig.
struct OneOf {
  std::string type;
  std::vector<Enumerator> values;
};

// A field that holds fields.
struct NestedFields {
  std::string type;                         // its message in a schema: "DataConfig"
  std::shared_ptr<const FieldTable> table;  // null: declared and read elsewhere
  bool repeated = false;
  bool choice = false;                    // one of several fields that exclude each other
  void* (*open)(void* member) = nullptr;  // makes, inside the member, the struct to read into
};

struct FieldSpec {
  std::string name, doc;
  MemberType member;
  size_t offset;                           // of the member in the options struct
  std::optional<Attribute> default_value;  // the struct's value if the field is not set
  std::optional<FieldRange> range = std::nullopt;
  bool required = false;
  std::string stand_in = "";                      // see StandIn
  std::optional<Attribute> unset = std::nullopt;  // kNoDefault: the struct's value, always valid
  std::optional<OneOf> one_of = std::nullopt;     // the words for a number
  std::optional<NestedFields> nested = std::nullopt;  // then `member` has no functions
  std::string example = "";                           // see FieldExample
  int number = 0;                                     // see FieldNumber; 0: the next one

  void Set(FieldRange new_range);
  void Set(FieldRequired) { required = true, default_value.reset(); }
  void Set(FieldNoDefault) { unset = std::move(default_value), default_value.reset(); }
  void Set(StandIn other) { stand_in = std::move(other.name), default_value.reset(); }
  void Set(FieldExample given) { example = std::move(given.text); }
  void Set(FieldNumber given) { number = given.number; }
  void Set(OneOf words) { one_of = std::move(words); }
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
  const std::string& message() const { return message_; }
  const std::string& title() const { return title_; }
  bool any() const { return any_; }
  // The choices: their name in a schema, and what a struct without one lacks ("data"). See Choices.
  const std::string& choice_name() const { return choice_name_; }
  const std::string& choice_noun() const { return choice_noun_; }
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
  // For Coracle's own code: applies the rules of the table to options that were read from a text.
  // See Rule.
  void ApplyRules(void* options, const FieldPlaces& given) const;

 protected:
  // Throws kInvalidArgument for a name that is taken or is not an identifier.
  void AddSpec(FieldSpec field);
  void ReadInto(const std::string& who, const Setting& setting, void* options) const;
  std::vector<NamedAttr> Values(const void* options) const;
  // Adds the fields and the rules of the table of the member at `offset`.
  void AddInlined(const FieldTable& table, size_t offset);

  // For Coracle's own code.
  using RuleFunction = std::function<void(void* options, const FieldPlaces& given)>;
  std::vector<std::pair<size_t, RuleFunction>> rules_;  // each with the offset of its struct
  std::string message_, title_, choice_name_ = "kind", choice_noun_ = "kind";

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

inline namespace internal {

// How a field table reads and writes a member of type T through attrs.
template <class T>
struct MemberAccess {
  using Type = std::conditional_t<std::is_enum_v<T>, int32_t,
                                  std::conditional_t<std::is_same_v<T, uint64_t>, int64_t, T>>;
  static std::optional<Attribute> Get(const void* member) {
    return Attribute(static_cast<Type>(*static_cast<const T*>(member)));
  }
  static void Set(void* member, const Attribute& value) {
    *static_cast<T*>(member) = static_cast<T>(AttributeAs<Type>(value));
  }
};
template <class T>
struct MemberAccess<std::optional<T>> {
  using Type = typename MemberAccess<T>::Type;
  static std::optional<Attribute> Get(const void* member) {
    const auto& value = *static_cast<const std::optional<T>*>(member);
    return value ? MemberAccess<T>::Get(&*value) : std::nullopt;
  }
  static void Set(void* member, const Attribute& value) {
    MemberAccess<T>::Set(&static_cast<std::optional<T>*>(member)->emplace(), value);
  }
};
template <class Member>
MemberType TypeOfMember() {
  using Access = MemberAccess<Member>;
  return {AttrTypeOf<typename Access::Type>(), Access::Get, Access::Set,
          std::is_same_v<Member, uint64_t>};
}

template <class Options, class Member>
size_t OffsetOf(Member Options::*member) {
  const Options options{};
  return static_cast<size_t>(reinterpret_cast<const char*>(&(options.*member)) -
                             reinterpret_cast<const char*>(&options));
}

// Makes a T in the member: a T, or a vector, an optional or a variant of it.
template <class T, class Member>
void* Open(void* member) {
  auto* holder = static_cast<Member*>(member);
  if constexpr (std::is_same_v<Member, T>)
    return holder;
  else if constexpr (requires { holder->emplace_back(); })
    return &holder->emplace_back();
  else if constexpr (requires { holder->has_value(); })
    return &holder->emplace();
  else
    return &holder->template emplace<T>();
}

}  // namespace internal

template <class Options>
class Fields : public FieldTable {
 public:
  explicit Fields(std::string doc) : FieldTable(std::move(doc)) {}

  template <class Member, class... Traits>
  Fields& Add(std::string name, Member Options::*member, std::string doc, const Traits&... traits) {
    return Add(std::move(name), member, std::move(doc), internal::TypeOfMember<Member>(),
               traits...);
  }
  // Adds a member whose type this file does not know.
  template <class Member, class... Traits>
  Fields& Add(std::string name, Member Options::*member, std::string doc, const MemberType& type,
              const Traits&... traits) {
    const Options options{};
    const size_t offset = internal::OffsetOf(member);
    FieldSpec field = {std::move(name), std::move(doc), type, offset,
                       type.get(reinterpret_cast<const char*>(&options) + offset)};
    (field.Set(traits), ...);
    AddSpec(std::move(field));
    return *this;
  }

  // The message that holds these fields in a schema: "DataConfig".
  Fields& Message(std::string name) {
    message_ = std::move(name);
    return *this;
  }
  // Begins the errors of a text about numbers out of range: "lookahead: k must be positive".
  Fields& Title(std::string title) {
    title_ = std::move(title);
    return *this;
  }
  // Adds a field that holds the fields of `table`. The member is a struct T, a std::optional<T>, or
  // a std::vector<T>, to which each message of a text adds an element.
  template <class Member, class T, class... Traits>
  Fields& Nested(std::string name, Member Options::*member, const Fields<T>& table, std::string doc,
                 const Traits&... traits) {
    return AddNested(std::move(name), std::move(doc), internal::OffsetOf(member),
                     {table.message(), std::make_shared<const FieldTable>(table),
                      std::is_same_v<Member, std::vector<T>>, false, internal::Open<T, Member>},
                     traits...);
  }
  // Adds a field for the case that the member, a std::variant, holds a T. A text gives one of them.
  template <class Variant, class T>
  Fields& Choice(std::string name, Variant Options::*member, const Fields<T>& table) {
    return AddNested(std::move(name), "", internal::OffsetOf(member),
                     {table.message(), std::make_shared<const FieldTable>(table), false, true,
                      internal::Open<T, Variant>});
  }
  // Names the choices for a schema, and for the error "train has no NOUN; give it one of ...".
  Fields& Choices(std::string name, std::string noun) {
    choice_name_ = std::move(name), choice_noun_ = std::move(noun);
    return *this;
  }
  // Adds a message with fields of this same struct.
  template <class... Traits>
  Fields& Group(std::string name, const Fields& table, std::string doc, const Traits&... traits) {
    return AddNested(std::move(name), std::move(doc), 0,
                     {table.message(), std::make_shared<const FieldTable>(table), false, false,
                      internal::Open<Options, Options>},
                     traits...);
  }
  // Adds a message that is declared and read elsewhere.
  template <class... Traits>
  Fields& Declare(std::string name, std::string message, bool repeated, std::string doc,
                  const Traits&... traits) {
    return AddNested(std::move(name), std::move(doc), 0, {std::move(message), nullptr, repeated},
                     traits...);
  }
  // Adds the fields of a member, as if they were those of this struct.
  template <class T>
  Fields& Inline(T Options::*member, const Fields<T>& table) {
    AddInlined(table, internal::OffsetOf(member));
    return *this;
  }
  // For Coracle's own code: adds a rule that a reader of a text applies after it has set all
  // fields. It fills in what depends on other fields, and refuses fields that contradict others.
  Fields& Rule(std::function<void(Options&, const FieldPlaces&)> rule) {
    rules_.emplace_back(0, [rule = std::move(rule)](void* options, const FieldPlaces& given) {
      rule(*static_cast<Options*>(options), given);
    });
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
  template <class... Traits>
  Fields& AddNested(std::string name, std::string doc, size_t offset, NestedFields nested,
                    const Traits&... traits) {
    FieldSpec field = {
        std::move(name), std::move(doc), {AttrType::kRaw, nullptr, nullptr}, offset, std::nullopt};
    field.nested = std::move(nested);
    (field.Set(traits), ...);
    AddSpec(std::move(field));
    return *this;
  }
};

}  // namespace coracle
