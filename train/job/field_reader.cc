#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/job/field_reader.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

void RequireChoice(const FieldTable& table, const JobNode& at, const std::string& name) {
  std::vector<std::string> choices;
  for (const FieldSpec& field : table.fields()) {
    if (!field.nested || !field.nested->choice) continue;
    if (at.Has(field.name)) return;
    choices.push_back(field.name);
  }
  // Test data like the training data has its source.
  if (table.Find("like_train") && at.Has("like_train") && at.Get<bool>("like_train")) return;
  if (choices.empty()) return;
  at.FailHere(fmt::format("{} has no {}; give it one of {}", name, table.choice_noun(),
                          Join(choices, ", ")));
}

// The value of a field as the member takes it.
Attribute ValueOf(const FieldSpec& field, const JobNode& at) {
  Attribute value = at.Value(field.name);
  if (!field.one_of) return value;
  return field.one_of->values.at(static_cast<size_t>(AttributeAs<int32_t>(value))).value;
}

void ReadNested(const FieldSpec& field, const JobNode& at, const FieldPlaces& given, void* member) {
  const NestedFields& nested = *field.nested;
  if (!nested.table) return;
  for (int i = 0; i < (nested.repeated ? at.Count(field.name) : 1); ++i) {
    const int index = nested.repeated ? i : -1;
    ReadFields(at.Child(field.name, index), *nested.table, field.name,
               given.Child(field.name, index), nested.open(member));
  }
}

}  // namespace

void ReadValues(const JobNode& at, const FieldTable& table, const std::string& who, void* options) {
  for (const FieldSpec& field : table.fields()) {
    if (field.nested || !at.Has(field.name)) continue;
    at.CheckRange(field, who);
    try {
      field.member.set(static_cast<char*>(options) + field.offset, ValueOf(field, at));
    } catch (const Error& error) {
      at.Fail(field.name, error.message());
    }
  }
}

void ReadFields(const JobNode& at, const FieldTable& table, const std::string& name,
                const FieldPlaces& given, void* options) {
  RequireChoice(table, at, name);
  for (const FieldSpec& field : table.fields())
    if (field.required && !at.Has(field.name)) at.Need(name, {field.name.c_str()});
  ReadValues(at, table, table.title(), options);
  for (const FieldSpec& field : table.fields()) {
    if (field.nested && at.Has(field.name))
      ReadNested(field, at, given, static_cast<char*>(options) + field.offset);
  }
  table.ApplyRules(options, given);
}

}  // namespace coracle::inline internal
