#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/schema_help.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// The comment before a message or after an enumerator, as one line.
template <class T>
std::string CommentOf(const T& descriptor) {
  google::protobuf::SourceLocation location;
  if (!descriptor.GetSourceLocation(&location)) return "";
  std::string text;
  for (const std::string& line :
       Split(location.leading_comments + location.trailing_comments, '\n')) {
    const std::string_view words = Trim(line);
    if (!words.empty()) text += (text.empty() ? "" : " ") + std::string(words);
  }
  return text;
}

// The default as a text gives it; "" if there is none.
std::string DefaultWord(const FieldDescriptor& field) {
  google::protobuf::FieldDescriptorProto proto;
  field.CopyTo(&proto);
  return proto.default_value();
}

TextField FieldOf(const SchemaPool& schema, const FieldDescriptor& field) {
  const FieldNote& note = schema.NoteOf(field);
  TextField text;
  text.name = field.name();
  text.type = field.message_type() ? "{ ... }"
              : field.enum_type()  ? field.enum_type()->name()
                                   : field.cpp_type_name();
  text.repeated = field.is_repeated();
  text.required = note.required;
  text.default_value = field.is_repeated() ? note.default_list : DefaultWord(field);
  text.range = note.range ? note.range->text : "";
  text.doc = note.doc;
  for (int i = 0; field.enum_type() && i < field.enum_type()->value_count(); ++i) {
    const auto& value = *field.enum_type()->value(i);
    text.one_of.emplace_back(value.name(), CommentOf(value));
  }
  return text;
}

// A line like "  size  int32 [4]  columns of the result; must be positive".
std::string LineOf(const TextField& field, size_t width) {
  std::string text = fmt::format("  {:<{}}  {}{}", field.name, width, field.type,
                                 field.repeated ? ", repeated" : "");
  if (!field.repeated && !field.default_value.empty())
    text += fmt::format(" [{}]", field.default_value);
  FieldNote note = {field.doc, field.required};
  if (field.repeated) note.default_list = field.default_value;
  std::string doc = note.Comment();
  if (!field.range.empty()) doc += (doc.empty() ? "" : "; ") + field.range;
  return text + (doc.empty() ? "\n" : fmt::format("  {}\n", doc));
}

std::string LinesOf(const std::vector<TextField>& fields) {
  size_t width = 0;
  for (const TextField& field : fields) width = std::max(width, field.name.size());
  std::string text;
  for (const TextField& field : fields) text += LineOf(field, width);
  return text;
}

// The properties of a field found by its path.
std::string Properties(const TextField& field) {
  std::string text =
      fmt::format("  type     {}{}\n", field.type, field.repeated ? ", repeated" : "");
  const auto add = [&](const char* what, const std::string& value) {
    if (!value.empty()) text += fmt::format("  {:<7}  {}\n", what, value);
  };
  add("needed", field.required ? "yes" : "");
  add("default", field.default_value);
  add("range", field.range);
  for (const auto& [value, meaning] : field.one_of)
    text += fmt::format("  {:<7}  {}{}\n", &value == &field.one_of[0].first ? "one of" : "", value,
                        meaning.empty() ? "" : ": " + meaning);
  return text;
}

AttrType TypeOf(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return AttrType::kBoolean;
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return AttrType::kFloat64;
    case FieldDescriptor::CPPTYPE_STRING:
      return AttrType::kString;
    default:
      return AttrType::kLong;
  }
}

// The first enumerator that is not the default.
std::string OtherEnumerator(const FieldDescriptor& field) {
  const auto& type = *field.enum_type();
  for (int i = 0; field.has_default_value() && i < type.value_count(); ++i)
    if (type.value(i)->number() != field.default_value_enum()->number())
      return type.value(i)->name();
  return type.value(0)->name();
}

// Whether `statements` set that field, outside braces.
bool Gives(const std::string& statements, const std::string& field) {
  int depth = 0;
  for (size_t i = 0; i < statements.size(); ++i) {
    if (statements[i] == '{') ++depth;
    if (statements[i] == '}') --depth;
    const bool begins = i == 0 || statements[i - 1] == ' ';
    if (depth != 0 || !begins || statements.compare(i, field.size(), field) != 0) continue;
    const std::string_view rest = std::string_view(statements).substr(i + field.size());
    if (rest.starts_with(':') || rest.starts_with(" {")) return true;
  }
  return false;
}

// Writes statements of a text that the schema accepts.
class ExampleWriter {
 public:
  explicit ExampleWriter(const SchemaPool& schema) : schema_(schema) {}

  // "batch_size: 64", "train { digits { count: 20000 } }".
  std::string Statement(const FieldDescriptor& field) const {
    const std::string& written = schema_.NoteOf(field).example;
    if (!written.empty()) return written;
    if (field.message_type()) return Braced(field, Body(*field.message_type(), nullptr, ""));
    return fmt::format("{}: {}", field.name(), Value(field));
  }

  std::string Braced(const FieldDescriptor& field, const std::string& body) const {
    return field.name() + (body.empty() ? " { }" : " { " + body + " }");
  }

  // The body of a message in which `statement` sets `chosen`: with the other required fields and
  // one of its kinds; if that is empty, with a field that has a default.
  std::string Body(const Descriptor& type, const FieldDescriptor* chosen,
                   const std::string& statement) const {
    std::vector<std::string> parts;
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (&field != chosen && schema_.NoteOf(field).required && !Gives(statement, field.name()))
        parts.push_back(Statement(field));
    }
    const auto* kinds = type.oneof_decl_count() > 0 ? type.oneof_decl(0) : nullptr;
    const bool kind_given = chosen && chosen->containing_oneof();
    if (kinds && !kind_given) parts.push_back(Statement(*kinds->field(0)));
    if (!statement.empty()) parts.push_back(statement);
    for (int i = 0; parts.empty() && !chosen && i < type.field_count(); ++i)
      if (type.field(i)->has_default_value()) parts.push_back(Statement(*type.field(i)));
    return Join(parts, " ");
  }

 private:
  std::string Value(const FieldDescriptor& field) const {
    const FieldNote& note = schema_.NoteOf(field);
    if (field.enum_type()) return OtherEnumerator(field);
    const std::string otherwise = DefaultWord(field);
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        return otherwise == "true" ? "false" : "true";
      case FieldDescriptor::CPPTYPE_STRING:
        return fmt::format("\"{}\"", otherwise.empty() ? field.name() : otherwise);
      default:
        return otherwise.empty() ? ExampleValue(TypeOf(field), note.range, 0) : otherwise;
    }
  }

  const SchemaPool& schema_;
};

// The fields on the way from the root to the field at a path.
using Way = std::vector<const FieldDescriptor*>;

std::string ExampleAt(const SchemaPool& schema, const Way& way) {
  if (way.empty()) return "";
  const ExampleWriter writer(schema);
  std::string text = writer.Statement(*way.back());
  for (size_t i = way.size() - 1; i > 0; --i)
    text = writer.Braced(*way[i - 1], writer.Body(*way[i - 1]->message_type(), way[i], text));
  return text + "\n";
}

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

// Throws kNotFound for an unknown path.
Way WayTo(const SchemaPool& schema, std::string_view path) {
  const std::vector<std::string> names = Split(path, '.');
  Way way;
  const Descriptor* type = schema.root();
  std::string at = names.empty() ? "" : names[0];
  for (size_t i = 1; i < names.size(); ++i) {
    if (!type) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{} is {} and has no fields", at, way.back()->cpp_type_name()));
    }
    const FieldDescriptor* field = type->FindFieldByName(names[i]);
    if (!field) {
      const std::string hint = DidYouMean(names[i], FieldNames(*type));
      throw Error(
          ErrorCode::kNotFound,
          fmt::format("{} has no field {}{}", at, Quote(names[i]),
                      hint.empty() ? fmt::format("; `coracle help {}` lists them", at) : hint));
    }
    way.push_back(field);
    at += "." + names[i];
    type = field->message_type();
  }
  return way;
}

}  // namespace

std::string ToText(const TextEntry& entry) {
  std::string text = entry.kind.empty() ? "" : entry.kind + " ";
  text += fmt::format("{}: {}\n", entry.name, entry.doc);
  if (!entry.field.name.empty()) text += Properties(entry.field);
  if (!entry.field.name.empty() && !entry.fields.empty()) text += "fields\n";
  text += LinesOf(entry.fields);
  if (entry.example.empty()) return text;
  text += "example\n";
  for (const std::string& line : Split(entry.example, '\n'))
    if (!line.empty()) text += "  " + line + "\n";
  return text;
}

TextEntry EntryOf(const SchemaPool& schema, const Descriptor& type, std::string kind,
                  std::string name) {
  TextEntry entry = {std::move(kind), std::move(name), CommentOf(type), {}, {}, ""};
  for (int i = 0; i < type.field_count(); ++i)
    entry.fields.push_back(FieldOf(schema, *type.field(i)));
  return entry;
}

TextEntry EntryAt(const SchemaPool& schema, std::string_view path) {
  const Way way = WayTo(schema, path);
  if (way.empty()) return EntryOf(schema, *schema.root(), "", std::string(path));
  const FieldDescriptor& field = *way.back();
  TextEntry entry;
  if (field.message_type()) entry = EntryOf(schema, *field.message_type(), "", "");
  entry.name = path;
  entry.field = FieldOf(schema, field);
  if (!entry.field.doc.empty())
    entry.doc = entry.field.doc + (entry.doc.empty() ? "" : ". " + entry.doc);
  entry.example = ExampleAt(schema, way);
  return entry;
}

std::vector<std::string> FieldsBelow(const SchemaPool& schema, std::string_view path) {
  std::vector<std::string> paths;
  try {
    const Way way = WayTo(schema, path);
    const Descriptor* type = way.empty() ? schema.root() : way.back()->message_type();
    if (!type) return paths;
    for (const std::string& name : FieldNames(*type))
      paths.push_back(fmt::format("{}.{}", path, name));
  } catch (const Error&) {
    // An unknown path has no fields below it.
  }
  return paths;
}

std::string ExampleValue(AttrType type, const std::optional<FieldRange>& range, size_t index) {
  if (type == AttrType::kBoolean) return "true";
  if (type == AttrType::kString) return "\"x\"";
  const bool whole = type == AttrType::kInt || type == AttrType::kLong;
  std::vector<std::string> fit;
  for (const double value : {1.0, 2.0, 4.0, 0.5, 0.0, -1.0, 8.0, 100.0}) {
    if (whole && value == 0.5) continue;
    if (!range || range->Holds(value)) fit.push_back(fmt::format("{}", value));
  }
  return fit.empty() ? "1" : fit[std::min(index, fit.size() - 1)];
}

}  // namespace coracle::inline internal
