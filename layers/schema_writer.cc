#include <coracle/layers/internal/schema_writer.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace coracle::inline internal {
namespace {

using google::protobuf::EnumDescriptorProto;
using google::protobuf::FieldDescriptor;
using Proto = SchemaWriter::Proto;

class Collector : public google::protobuf::DescriptorPool::ErrorCollector {
 public:
  void AddError(const std::string&, const std::string& element, const google::protobuf::Message*,
                ErrorLocation, const std::string& message) override {
    text += fmt::format("{}: {}; ", element, message);
  }
  void AddWarning(const std::string&, const std::string&, const google::protobuf::Message*,
                  ErrorLocation, const std::string&) override {}
  std::string text;
};

}  // namespace

bool IsList(AttrType type) {
  switch (type) {
    case AttrType::kInts:
    case AttrType::kFloats:
    case AttrType::kStrings:
    case AttrType::kBooleans:
    case AttrType::kLongs:
    case AttrType::kFloat64s:
    case AttrType::kVars:
    case AttrType::kScalars:
      return true;
    default:
      return false;
  }
}

Proto::Type ProtoType(AttrType type) {
  switch (type) {
    case AttrType::kInt:
    case AttrType::kInts:
      return Proto::TYPE_INT32;
    case AttrType::kLong:
    case AttrType::kLongs:
      return Proto::TYPE_INT64;
    case AttrType::kFloat:
    case AttrType::kFloats:
      return Proto::TYPE_FLOAT;
    case AttrType::kFloat64:
    case AttrType::kFloat64s:
    case AttrType::kScalar:
    case AttrType::kScalars:
      return Proto::TYPE_DOUBLE;
    case AttrType::kBoolean:
    case AttrType::kBooleans:
      return Proto::TYPE_BOOL;
    default:
      return Proto::TYPE_STRING;
  }
}

std::string DefaultText(const Attribute& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<float>(&value)) {
    if (std::isnan(*number)) return "nan";
    return fmt::format("{}", *number);
  }
  return IsList(TypeOf(value)) ? "" : ToString(value);
}

google::protobuf::TextFormat::ParseLocation LocationOf(
    const google::protobuf::TextFormat::ParseInfoTree& tree, const FieldDescriptor& field,
    int index, int count) {
  if (index > 0 && tree.GetLocation(&field, std::max(index, count - 1)).line < 0) index = 0;
  return tree.GetLocation(&field, index);
}

Attribute FieldValue(const google::protobuf::Message& message, const FieldDescriptor& field) {
  using F = FieldDescriptor;
  const google::protobuf::Reflection& r = *message.GetReflection();
  const auto list = [&](auto get) {
    std::vector<std::decay_t<decltype(get(0))>> values;
    for (int i = 0; i < r.FieldSize(message, &field); ++i) values.push_back(get(i));
    return values;
  };
  const bool several = field.is_repeated();
  switch (field.cpp_type()) {
    case F::CPPTYPE_BOOL:
      if (several) return list([&](int i) { return r.GetRepeatedBool(message, &field, i); });
      return r.GetBool(message, &field);
    case F::CPPTYPE_ENUM:
      if (several)
        return list([&](int i) -> int32_t { return r.GetRepeatedEnumValue(message, &field, i); });
      return int32_t{r.GetEnumValue(message, &field)};
    case F::CPPTYPE_INT32:
      if (several)
        return list([&](int i) -> int32_t { return r.GetRepeatedInt32(message, &field, i); });
      return r.GetInt32(message, &field);
    case F::CPPTYPE_FLOAT:
      if (several) return list([&](int i) { return r.GetRepeatedFloat(message, &field, i); });
      return r.GetFloat(message, &field);
    case F::CPPTYPE_UINT64:  // the bits
      return static_cast<int64_t>(r.GetUInt64(message, &field));
    case F::CPPTYPE_INT64:
      if (several)
        return list([&](int i) -> int64_t { return r.GetRepeatedInt64(message, &field, i); });
      return static_cast<int64_t>(r.GetInt64(message, &field));
    case F::CPPTYPE_DOUBLE:
      if (several) return list([&](int i) { return r.GetRepeatedDouble(message, &field, i); });
      return r.GetDouble(message, &field);
    case F::CPPTYPE_STRING:
      if (several) return list([&](int i) { return r.GetRepeatedString(message, &field, i); });
      return r.GetString(message, &field);
    default:
      throw InternalError("a field of a type that texts have not: " + field.full_name());
  }
}

std::string FieldNote::Comment() const {
  std::string text = doc;
  if (required) text += doc.empty() ? "required" : " (required)";
  if (!default_list.empty()) text += fmt::format(" (default {})", default_list);
  if (range) text += (text.empty() ? "" : "; ") + range->text;
  return text;
}

SchemaWriter::SchemaWriter(const std::string& file, const std::string& package,
                           std::string named_value)
    : named_value_(std::move(named_value)) {
  file_.set_name(file);
  file_.set_package(package);
  file_.set_syntax("proto2");
}

Proto& SchemaWriter::Message::Field(const std::string& name, Proto::Type type, bool repeated,
                                    const std::string& type_name, const FieldNote& note) {
  const int last = proto().field_size();
  const int number = last > 0 ? proto().field(last - 1).number() + 1 : 1;
  Proto& field = *proto().add_field();
  field.set_name(name);
  field.set_number(number == 19000 ? 20000 : number);  // protobuf reserves the numbers between
  field.set_type(type);
  field.set_label(repeated ? Proto::LABEL_REPEATED : Proto::LABEL_OPTIONAL);
  if (!type_name.empty())
    field.set_type_name(fmt::format(".{}.{}", writer_->file_.package(), type_name));
  writer_->Comment({4, index_, 2, proto().field_size() - 1}, note.Comment());
  writer_->notes_[proto().name() + "." + name] = note;
  return field;
}

void SchemaWriter::Message::Scalar(const std::string& name, Proto::Type type,
                                   const std::string& otherwise, const std::string& doc) {
  Proto& field = Field(name, type, false, "", {doc});
  if (!otherwise.empty()) field.set_default_value(otherwise);
}

void SchemaWriter::Message::Value(const std::string& name, AttrType type,
                                  const std::optional<Attribute>& otherwise, bool required,
                                  const std::string& doc, const std::optional<FieldRange>& range) {
  const bool list = IsList(type);
  FieldNote note = {doc, required, range};
  if (list && otherwise) note.default_list = ToString(*otherwise);
  Proto& field = Field(name, ProtoType(type), list, "", note);
  const std::string text = otherwise ? DefaultText(*otherwise) : "";
  if (!text.empty()) field.set_default_value(text);
}

void SchemaWriter::Message::Enum(const std::string& name, const std::string& type_name,
                                 const std::string& otherwise, const std::string& doc,
                                 bool required) {
  Proto& field = Field(name, Proto::TYPE_ENUM, false, type_name, {doc, required});
  if (!otherwise.empty()) field.set_default_value(otherwise);
}

void SchemaWriter::Message::Choice(Proto& field, const std::string& name) {
  if (proto().oneof_decl_size() == 0) proto().add_oneof_decl()->set_name(name);
  field.set_oneof_index(0);
}

SchemaWriter::Message& SchemaWriter::Message::Add(const FieldTable& table) {
  for (const FieldSpec& field : table.fields()) {
    Proto& added = AddSpec(field, {field.doc, field.required, field.range, "", field.example});
    if (field.number > 0) added.set_number(field.number);
    if (field.nested && field.nested->choice) Choice(added, table.choice_name());
  }
  if (table.any()) NestedList("attr", writer_->named_value_, "named values");
  return *this;
}

Proto& SchemaWriter::Message::AddSpec(const FieldSpec& field, FieldNote note) {
  if (field.nested) {
    writer_->AddNested(*field.nested);
    return Field(field.name, Proto::TYPE_MESSAGE, field.nested->repeated, field.nested->type, note);
  }
  const std::optional<Attribute>& value = field.default_value;
  if (field.one_of) {
    writer_->AddOneOf(*field.one_of);
    Proto& added = Field(field.name, Proto::TYPE_ENUM, false, field.one_of->type, note);
    for (const Enumerator& word : field.one_of->values)
      if (value == Attribute(word.value)) added.set_default_value(word.name);
    return added;
  }
  const bool list = IsList(field.member.type);
  if (list && value) note.default_list = ToString(*value);
  if (note.default_list == "[]") note.default_list.clear();
  const Proto::Type type =
      field.member.is_unsigned ? Proto::TYPE_UINT64 : ProtoType(field.member.type);
  Proto& added = Field(field.name, type, list, "", note);
  const std::string text = value ? DefaultText(*value) : "";
  if (!text.empty()) added.set_default_value(text);
  return added;
}

bool SchemaWriter::Message::Takes(const std::string& name) const {
  return IsIdentifier(name) && std::none_of(proto().field().begin(), proto().field().end(),
                                            [&](const Proto& f) { return f.name() == name; });
}

SchemaWriter::Message SchemaWriter::Add(const std::string& name, const std::string& doc) {
  file_.add_message_type()->set_name(name);
  Comment({4, file_.message_type_size() - 1}, doc);
  return Message(this, file_.message_type_size() - 1);
}

int SchemaWriter::Find(const std::string& message) const {
  for (int i = 0; i < file_.message_type_size(); ++i)
    if (file_.message_type(i).name() == message) return i;
  return -1;
}

void SchemaWriter::AddNested(const NestedFields& nested) {
  if (!nested.table || Find(nested.type) >= 0) return;
  Add(nested.type, nested.table->doc()).Add(*nested.table);
}

void SchemaWriter::AddOneOf(const OneOf& one_of) {
  const size_t dot = one_of.type.find('.');
  const int outer = dot == std::string::npos ? -1 : Find(one_of.type.substr(0, dot));
  auto& types = outer < 0 ? *file_.mutable_enum_type()
                          : *file_.mutable_message_type(outer)->mutable_enum_type();
  const std::string name = one_of.type.substr(dot + 1);
  for (const EnumDescriptorProto& type : types)
    if (type.name() == name) return;
  std::vector<int> path = outer < 0 ? std::vector<int>{5} : std::vector<int>{4, outer, 4};
  path.insert(path.end(), {types.size(), 2, 0});
  EnumDescriptorProto& type = *types.Add();
  type.set_name(name);
  for (const Enumerator& word : one_of.values) {
    path.back() = type.value_size();
    auto& value = *type.add_value();
    value.set_name(word.name);
    value.set_number(path.back());
    Comment(path, word.doc);
  }
}

void SchemaWriter::AddKinds(Message parent, const std::string& suffix, const KindsWithFields& kinds,
                            const std::set<std::string>& taken) {
  for (const auto& [kind, fields] : kinds) {
    if (!parent.Takes(kind) || taken.count(kind)) continue;
    const std::string name = fmt::format("{}_{}", kind, suffix);
    Add(name, fields.doc()).Add(fields);
    parent.Choice(parent.Nested(kind, name, ""));
  }
}

void SchemaWriter::AddEnum(const std::string& name,
                           const std::vector<std::pair<const char*, int>>& values) {
  EnumDescriptorProto& type = *file_.add_enum_type();
  type.set_name(name);
  std::set<int> numbers;
  for (const auto& [word, number] : values) {
    auto& value = *type.add_value();
    value.set_name(word);
    value.set_number(number);
    if (!numbers.insert(number).second) type.mutable_options()->set_allow_alias(true);
  }
}

void SchemaWriter::Comment(const std::vector<int>& path, const std::string& text) {
  if (text.empty()) return;
  auto& location = *file_.mutable_source_code_info()->add_location();
  for (int part : path) location.add_path(part);
  for (int i = 0; i < 3; ++i) location.add_span(0);
  std::string line = " " + text;
  for (char& c : line) {
    if (std::iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  location.set_leading_comments(line + "\n");
}

SchemaPool::SchemaPool(const SchemaWriter& schema, const std::string& root)
    : factory_(&pool_), notes_(schema.notes()) {
  Collector errors;
  const auto* file = pool_.BuildFileCollectingErrors(schema.file(), &errors);
  if (!file) throw InternalError("a schema is not valid: " + errors.text);
  root_ = file->FindMessageTypeByName(root);
}

std::unique_ptr<google::protobuf::Message> SchemaPool::New() const {
  return std::unique_ptr<google::protobuf::Message>(factory_.GetPrototype(root_)->New());
}

std::string SchemaPool::Print() const {
  google::protobuf::DebugStringOptions options;
  options.include_comments = true;
  return root_->file()->DebugStringWithOptions(options);
}

std::vector<std::string> SchemaPool::NamesBefore(const std::vector<std::string>& suffixes) const {
  std::vector<std::string> names;
  for (int i = 0; i < root_->file()->message_type_count(); ++i) {
    const std::string& name = root_->file()->message_type(i)->name();
    for (const std::string& suffix : suffixes)
      if (name.ends_with(suffix)) names.push_back(name.substr(0, name.size() - suffix.size()));
  }
  return names;
}

const FieldNote& SchemaPool::NoteOf(const FieldDescriptor& field) const {
  static const FieldNote none;
  const auto found = notes_.find(field.containing_type()->name() + "." + field.name());
  return found == notes_.end() ? none : found->second;
}

}  // namespace coracle::inline internal
