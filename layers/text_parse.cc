#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <coracle/layers/internal/text_hints.h>
#include <coracle/layers/internal/text_parse.h>
#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <optional>

namespace coracle::inline internal {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

// Two messages (Layer, Repeat) for each level of nesting, and some for the contents of an entry.
constexpr int kMaxMessageDepth = 2 * 64 + 8;

struct FirstError : google::protobuf::io::ErrorCollector {
  void AddError(int at_line, int at_column, const std::string& what) override {
    if (!message.empty()) return;
    line = at_line;
    column = at_column;
    message = what;
  }
  void AddWarning(int, int, const std::string&) override {}
  int line = -1, column = 0;
  std::string message;
};

// The last occurrence of the name before `offset`, since the parser reports a wrong name one
// token late.
size_t PlaceBefore(const std::string& text, size_t offset, const std::string& name) {
  if (name.empty()) return offset;
  size_t place = text.rfind(name, offset);
  return place == std::string::npos ? offset : place;
}

// A hint for an unknown layer or raw op.
std::string EntryHint(const Descriptor& type, const std::string& name) {
  const FieldDescriptor* op = type.FindFieldByName("op");
  if (op && op->message_type() && op->message_type()->FindFieldByName(name))
    return fmt::format("; there is an op of that name: op {{ {} {{ ... }} }}", name);
  return NameHint(name, FieldNames(type), op ? "layers" : "ops");
}

std::string NoSuchField(const TextSchema& schema, const std::string& message) {
  const Descriptor* type = schema.pool().Find(QuotedIn(message, 0));
  const std::string name = QuotedIn(message, 1);
  if (!type) return message;
  const std::string in = DisplayName(*type);
  if (in == "Op" && FindRefusedOp(name)) return DescribeMissingOp(name);
  if (in == "Layer" || in == "Op") {
    return fmt::format("{}: no such {}{}", name, in == "Layer" ? "layer" : "op",
                       EntryHint(*type, name));
  }
  return fmt::format("{}: no such field in {}{}", name, in, FieldHint(*type, name));
}

// " The brace of fc at m:2:9 is open", for the innermost brace that is open at `offset`.
std::string OpenBraceHint(const TextFile& file, size_t offset) {
  const std::optional<OpenBrace> open = OpenBraceBefore(file.text, offset);
  if (!open) return "";
  return fmt::format(" The brace of {} at {} is open", open->of, file.WhereOf(open->offset));
}

// Blames an unclosed brace if an entry is inside a message that cannot contain it.
void ThrowIfUnclosed(const TextSchema& schema, const TextFile& file, const std::string& message,
                     size_t offset) {
  const Descriptor* type = schema.pool().Find(QuotedIn(message, 0));
  const std::string name = QuotedIn(message, 1);
  if (!type || !IsOfRootAlone(*schema.pool().root(), *type, name)) return;
  const size_t place = PlaceBefore(file.text, offset, name);
  const std::optional<OpenBrace> open = OpenBraceBefore(file.text, place);
  if (!open) return;
  throw LocatedError(file.WhereOf(open->offset),
                     fmt::format("{}: its brace is not closed before the {} at {}", open->of, name,
                                 file.WhereOf(place)));
}

std::string UnknownEnumerator(const TextSchema& schema, const std::string& message) {
  const std::string name = QuotedIn(message, 0), field = QuotedIn(message, 1);
  std::vector<std::string> names;
  const auto* type = schema.pool().root()->file()->FindEnumTypeByName("DType");
  for (int i = 0; i < type->value_count(); ++i) names.push_back(type->value(i)->name());
  return fmt::format("{}: no such dtype for {}{}", name, field, DidYouMean(name, names));
}

[[noreturn]] void ThrowParseError(const TextSchema& schema, const TextFile& file,
                                  const FirstError& error) {
  const std::string& message = error.message;
  size_t offset = file.OffsetOf(error.line, error.column);
  auto is = [&](const char* part) { return message.find(part) != std::string::npos; };
  if (error.line < 0) throw LocatedError(file.source, TidyMessage(message));
  if (is("has no field named")) {
    ThrowIfUnclosed(schema, file, message, offset);
    throw LocatedError(file.WhereOf(PlaceBefore(file.text, offset, QuotedIn(message, 1))),
                       NoSuchField(schema, message));
  }
  if (is("Unknown enumeration value")) {
    throw LocatedError(file.WhereOf(PlaceBefore(file.text, offset, QuotedIn(message, 0))),
                       UnknownEnumerator(schema, message));
  }
  if (is("is specified multiple times")) {
    throw LocatedError(file.WhereOf(PlaceBefore(file.text, offset, QuotedIn(message, 0))),
                       fmt::format("{} is given twice", QuotedIn(message, 0)));
  }
  if (is("another member of oneof")) {
    const std::string first = QuotedIn(message, 1), second = QuotedIn(message, 0);
    throw LocatedError(file.WhereOf(PlaceBefore(file.text, offset, second)),
                       fmt::format("an entry can hold only one of {} and {}", second, first));
  }
  if (is("recursion limit")) {
    throw LocatedError(file.WhereOf(offset), "messages are nested deeper than 64 levels");
  }
  const bool at_end = message.ends_with("got: ");
  throw LocatedError(file.WhereOf(offset),
                     TidyMessage(message) + (at_end ? OpenBraceHint(file, offset) : ""));
}

}  // namespace

std::string TextFile::WhereOf(size_t offset) const {
  const size_t line = columns.LineAt(offset);
  return fmt::format("{}:{}:{}", source, line + 1, offset - columns.LineBegin(line) + 1);
}

std::string TextFile::Where(int line, int column) const {
  return line < 0 ? source : WhereOf(OffsetOf(line, column));
}

std::unique_ptr<TextFile> ParseText(const TextSchema& schema, std::string text, std::string source,
                                    std::string directory) {
  auto file = std::make_unique<TextFile>();
  file->source = std::move(source);
  file->directory = std::move(directory);
  file->text = std::move(text);
  if (file->text.size() >= size_t{1} << 30) {
    throw LocatedError(file->source, "the text is larger than 1 GiB");
  }
  file->columns = TextColumns(file->text);
  google::protobuf::LogSilencer silencer;
  file->message = schema.pool().New();
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&file->tree);
  parser.SetRecursionLimit(kMaxMessageDepth);
  google::protobuf::io::ArrayInputStream input(file->text.data(),
                                               static_cast<int>(file->text.size()));
  if (!parser.Parse(&input, file->message.get()) || !error.message.empty()) {
    ThrowParseError(schema, *file, error);
  }
  return file;
}

const FieldDescriptor& Node::Field(const char* name) const {
  const FieldDescriptor* field = type().FindFieldByName(name);
  if (!field) throw InternalError(fmt::format("{} has no field {}", type().full_name(), name));
  return *field;
}

int Node::Count(const FieldDescriptor& field) const {
  const Reflection* reflection = message_->GetReflection();
  if (field.is_repeated()) return reflection->FieldSize(*message_, &field);
  return reflection->HasField(*message_, &field) ? 1 : 0;
}

std::string Node::Where(const FieldDescriptor& field, int index) const {
  if (!tree_) return where_;
  const auto location = LocationOf(*tree_, field, field.is_repeated() ? index : -1, Count(field));
  return location.line < 0 ? where_ : file_->Where(location.line, location.column);
}

Node Node::Child(const FieldDescriptor& field, int index) const {
  const Reflection* reflection = message_->GetReflection();
  const auto& child = field.is_repeated() ? reflection->GetRepeatedMessage(*message_, &field, index)
                                          : reflection->GetMessage(*message_, &field);
  const ParseTree* tree =
      tree_ ? tree_->GetTreeForNested(&field, field.is_repeated() ? index : -1) : nullptr;
  return Node(*file_, child, tree, Where(field, index));
}

const FieldDescriptor* Node::Kind() const {
  return message_->GetReflection()->GetOneofFieldDescriptor(*message_,
                                                            type().FindOneofByName("kind"));
}

std::string Node::String(const FieldDescriptor& field, int index) const {
  const Reflection* reflection = message_->GetReflection();
  return field.is_repeated() ? reflection->GetRepeatedString(*message_, &field, index)
                             : reflection->GetString(*message_, &field);
}

double Node::Double(const char* name) const {
  return message_->GetReflection()->GetDouble(*message_, &Field(name));
}

int64_t Node::Integer(const char* name) const {
  const FieldDescriptor& field = Field(name);
  const Reflection* reflection = message_->GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    return reflection->GetEnumValue(*message_, &field);
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
    return reflection->GetInt32(*message_, &field);
  }
  return reflection->GetInt64(*message_, &field);
}

bool Node::Bool(const char* name) const {
  return message_->GetReflection()->GetBool(*message_, &Field(name));
}

Attribute Node::ToAttr(const FieldDescriptor& field, AttrType type,
                       std::vector<std::string> strings) const {
  switch (type) {
    case AttrType::kScalar:
      return Scalar{std::get<double>(FieldValue(*message_, field))};
    case AttrType::kScalars: {
      const Attribute numbers = FieldValue(*message_, field);  // outlives the loop
      std::vector<Scalar> values;
      for (const double value : std::get<std::vector<double>>(numbers))
        values.push_back(Scalar{value});
      return values;
    }
    case AttrType::kVars: {
      std::vector<VarRef> values;
      for (std::string& name : strings) values.push_back(VarRef{std::move(name)});
      return values;
    }
    case AttrType::kVar:
      return VarRef{strings.empty() ? "" : strings.front()};
    case AttrType::kStrings:
      return strings;
    case AttrType::kString:
      if (!strings.empty()) return strings.front();
      [[fallthrough]];
    default:
      return FieldValue(*message_, field);
  }
}

std::string DisplayName(const Descriptor& type) {
  std::string_view name = type.name();
  for (std::string_view suffix : {"_layer", "_op", "_clip", "_initializer", "_regularizer"}) {
    if (name.ends_with(suffix)) return std::string(name.substr(0, name.size() - suffix.size()));
  }
  return std::string(name);
}

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

}  // namespace coracle::inline internal
