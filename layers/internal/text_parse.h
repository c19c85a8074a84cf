#pragma once
// Parses model text into a message with the place of every field.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text_columns.h>
#include <coracle/layers/internal/text_schema.h>
#include <google/protobuf/text_format.h>

#include <memory>
#include <string>
#include <vector>

namespace coracle::inline internal {

// An error whose message begins with its place in a text.
class LocatedError : public Error {
 public:
  explicit LocatedError(const Error& error) : Error(error) {}
  LocatedError(const std::string& where, const std::string& message)
      : Error(ErrorCode::kInvalidArgument, where + ": " + message) {}
};

using ParseTree = google::protobuf::TextFormat::ParseInfoTree;

// One parsed text.
struct TextFile {
  std::string source;     // its name in messages
  std::string directory;  // where its includes are looked up
  std::string text;
  TextColumns columns;  // of the text
  std::unique_ptr<google::protobuf::Message> message;
  ParseTree tree;

  // "lenet.pbtxt:7:22" for protobuf's 0-based line and column (in which a tab advances to the next
  // multiple of 8); the source alone if the place is unknown.
  std::string Where(int line, int column) const;
  size_t OffsetOf(int line, int column) const { return columns.OffsetOf(line, column); }
  std::string WhereOf(size_t offset) const;
};

// Throws LocatedError at the first mistake.
std::unique_ptr<TextFile> ParseText(const TextSchema& schema, std::string text, std::string source,
                                    std::string directory);

// A message of a parsed text, with its place and the places of its fields.
class Node {
 public:
  Node(const TextFile& file, const google::protobuf::Message& message, const ParseTree* tree,
       std::string where)
      : file_(&file), message_(&message), tree_(tree), where_(std::move(where)) {}
  explicit Node(const TextFile& file) : Node(file, *file.message, &file.tree, file.source) {}

  const TextFile& file() const { return *file_; }
  const google::protobuf::Descriptor& type() const { return *message_->GetDescriptor(); }
  const std::string& where() const { return where_; }

  const google::protobuf::FieldDescriptor& Field(const char* name) const;
  // How often the field is given.
  int Count(const google::protobuf::FieldDescriptor& field) const;
  int Count(const char* name) const { return Count(Field(name)); }
  bool Has(const char* name) const { return Count(name) > 0; }
  // The place of one value of a field; the node's own place if it is unknown.
  std::string Where(const google::protobuf::FieldDescriptor& field, int index = 0) const;
  std::string Where(const char* name, int index = 0) const { return Where(Field(name), index); }
  Node Child(const google::protobuf::FieldDescriptor& field, int index = 0) const;
  Node Child(const char* name, int index = 0) const { return Child(Field(name), index); }
  // The field of the "kind" oneof that is given; nullptr if none is.
  const google::protobuf::FieldDescriptor* Kind() const;

  // These return the given value, or the default of the schema.
  std::string String(const google::protobuf::FieldDescriptor& field, int index = 0) const;
  std::string String(const char* name) const { return String(Field(name)); }
  double Double(const char* name) const;
  int64_t Integer(const char* name) const;
  bool Bool(const char* name) const;
  // The value of a field of any type other than a message.
  Attribute Value(const google::protobuf::FieldDescriptor& field) const {
    return FieldValue(*message_, field);
  }
  // A whole field as an attr of the given type; strings are passed to `expand` with their place.
  template <class Expand>
  Attribute Attr(const google::protobuf::FieldDescriptor& field, AttrType type,
                 Expand&& expand) const {
    std::vector<std::string> strings;
    if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      for (int i = 0; i < Count(field); ++i) {
        strings.push_back(expand(String(field, i), Where(field, i)));
      }
    }
    return ToAttr(field, type, std::move(strings));
  }

  [[noreturn]] void Fail(const std::string& message) const { throw LocatedError(where_, message); }

 private:
  Attribute ToAttr(const google::protobuf::FieldDescriptor& field, AttrType type,
                   std::vector<std::string> strings) const;

  const TextFile* file_;
  const google::protobuf::Message* message_;
  const ParseTree* tree_;
  std::string where_;
};

// Runs f; adds the place of `node` to its errors unless they have one.
template <class F>
auto Located(const Node& node, F f) {
  try {
    return f();
  } catch (const LocatedError&) {
    throw;
  } catch (const Error& error) {
    throw LocatedError(error.WithPrefix(node.where()));
  }
}

// "conv2d" for coracle.model.conv2d_layer, "Param" for coracle.model.Param.
std::string DisplayName(const google::protobuf::Descriptor& type);
std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type);

}  // namespace coracle::inline internal
