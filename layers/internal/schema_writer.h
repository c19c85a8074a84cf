#pragma once
// Schemas of texts as protobuf descriptors made at run time, with their comments.

#include <coracle/framework/ir/fields.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/text_format.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

bool IsList(AttrType type);
google::protobuf::FieldDescriptorProto::Type ProtoType(AttrType type);
// A default as a schema writes it; "" for a value that a schema cannot hold (a list).
std::string DefaultText(const Attribute& value);
// The value of a field that is not a message, or its default: a list for a repeated field, a number
// for an enumerator.
Attribute FieldValue(const google::protobuf::Message& message,
                     const google::protobuf::FieldDescriptor& field);
// Where a text gives one of the `count` values of a field; line -1 if unknown. `index` is -1 for a
// field that is not repeated. For values in brackets, protobuf knows only the place of the whole
// list. If there are fewer places than values, the values cannot be matched with places, so all get
// the first place.
google::protobuf::TextFormat::ParseLocation LocationOf(
    const google::protobuf::TextFormat::ParseInfoTree& tree,
    const google::protobuf::FieldDescriptor& field, int index, int count);
// The properties of a field that its descriptor does not hold.
struct FieldNote {
  std::string doc = "";
  bool required = false;
  std::optional<FieldRange> range = std::nullopt;
  // "[1, 1]": the default of a list.
  std::string default_list = "";
  // Statements of the enclosing message; "": help invents some.
  std::string example = "";

  // The comment in a printed schema: the doc, "(required)", the default of a list, the range.
  std::string Comment() const;
};

// Writes messages and, for printing, the comments that belong to them.
class SchemaWriter {
 public:
  using Proto = google::protobuf::FieldDescriptorProto;

  // Begins a schema of that file name and package. `named_value`: the message that holds an attr of
  // a kind without fields of its own.
  SchemaWriter(const std::string& file, const std::string& package, std::string named_value);

  // One message. Fields are numbered in order of addition; the numbers have no meaning in text.
  class Message {
   public:
    Message(SchemaWriter* writer, int index) : writer_(writer), index_(index) {}

    Proto& Field(const std::string& name, Proto::Type type, bool repeated,
                 const std::string& type_name, const FieldNote& note);
    void Scalar(const std::string& name, Proto::Type type, const std::string& otherwise,
                const std::string& doc);
    void List(const std::string& name, Proto::Type type, const std::string& doc,
              bool required = false) {
      Field(name, type, true, "", {doc, required});
    }
    // Adds a field without a default that must be given.
    Proto& Required(const std::string& name, Proto::Type type, const std::string& doc,
                    const std::string& type_name = "") {
      return Field(name, type, false, type_name, {doc, true});
    }
    Proto& Nested(const std::string& name, const std::string& type_name, const std::string& doc) {
      return Field(name, Proto::TYPE_MESSAGE, false, type_name, {doc});
    }
    void NestedList(const std::string& name, const std::string& type_name, const std::string& doc) {
      Field(name, Proto::TYPE_MESSAGE, true, type_name, {doc});
    }
    // Adds a number, a text or a list of these.
    void Value(const std::string& name, AttrType type, const std::optional<Attribute>& otherwise,
               bool required, const std::string& doc,
               const std::optional<FieldRange>& range = std::nullopt);
    void Enum(const std::string& name, const std::string& type_name, const std::string& otherwise,
              const std::string& doc, bool required = false);
    // Makes the field one of several that exclude each other; `name` is for all of them.
    void Choice(Proto& field, const std::string& name = "kind");
    // Adds all fields of the table, and the messages and enums of their types.
    Message& Add(const FieldTable& table);
    // Whether a field of that name could be added.
    bool Takes(const std::string& name) const;

   private:
    Proto& AddSpec(const FieldSpec& field, FieldNote note);
    google::protobuf::DescriptorProto& proto() {
      return *writer_->file_.mutable_message_type(index_);
    }
    const google::protobuf::DescriptorProto& proto() const {
      return writer_->file_.message_type(index_);
    }

    SchemaWriter* writer_;
    int index_;
  };

  Message Add(const std::string& name, const std::string& doc);
  // Adds one message "<kind>_<suffix>" for each kind, and makes each a choice of `parent`. Skips a
  // kind whose name is not an identifier or is the name of another field of the parent.
  void AddKinds(Message parent, const std::string& suffix, const KindsWithFields& kinds,
                const std::set<std::string>& taken = {});
  void AddEnum(const std::string& name, const std::vector<std::pair<const char*, int>>& values);

  void SetExample(const std::string& message, const std::string& field, std::string example) {
    notes_[message + "." + field].example = std::move(example);
  }

  const google::protobuf::FileDescriptorProto& file() const { return file_; }
  // The properties of each field, by name: "momentum_optimizer.mu".
  const std::map<std::string, FieldNote>& notes() const { return notes_; }

 private:
  void Comment(const std::vector<int>& path, const std::string& text);
  int Find(const std::string& message) const;  // its index, or -1
  // Adds the message of these fields, or the enum of these words, unless it exists.
  void AddNested(const NestedFields& nested);
  void AddOneOf(const OneOf& one_of);

  google::protobuf::FileDescriptorProto file_;
  std::string named_value_;
  std::map<std::string, FieldNote> notes_;
};

// The descriptors of a schema.
class SchemaPool {
 public:
  // Throws InternalError for an invalid schema. `root` is the message that a text holds.
  SchemaPool(const SchemaWriter& schema, const std::string& root);

  const google::protobuf::Descriptor* root() const { return root_; }
  std::unique_ptr<google::protobuf::Message> New() const;
  const google::protobuf::Descriptor* Find(const std::string& full_name) const {
    return pool_.FindMessageTypeByName(full_name);
  }
  bool IsRequired(const google::protobuf::FieldDescriptor& field) const {
    return NoteOf(field).required;
  }
  const FieldNote& NoteOf(const google::protobuf::FieldDescriptor& field) const;
  // The schema as a .proto file.
  std::string Print() const;
  // The names of the messages that end in one of the suffixes, without the suffix.
  std::vector<std::string> NamesBefore(const std::vector<std::string>& suffixes) const;

 private:
  google::protobuf::DescriptorPool pool_;
  mutable google::protobuf::DynamicMessageFactory factory_;
  const google::protobuf::Descriptor* root_ = nullptr;
  std::map<std::string, FieldNote> notes_;
};

}  // namespace coracle::inline internal
