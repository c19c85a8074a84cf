#pragma once
// Places in a job text: which line and column a field stands at, for errors.

#include <coracle/framework/base/text_columns.h>
#include <coracle/framework/ir/fields.h>
#include <coracle/layers/internal/schema_writer.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// From protobuf's places (lines and columns from 0, a tab to the next multiple of 8)
// to an editor's.
class Places {
 public:
  Places(std::string_view text, const std::string& source);

  const std::string& source() const { return source_; }

  // "file:line:column". protobuf notices a bad field past its name: with `name`, the place is
  // where that begins.
  std::string At(int line, int column, const std::string& name = "") const;
  // "fc at file:2:9": the innermost brace that is open before the field, "" if none is.
  std::string OpenBrace(int line, int column, const std::string& name) const;

 private:
  // The offset in the text of the place, or of `name` before it in its line.
  size_t OffsetAt(int line, int column, const std::string& name) const;

  std::string text_;
  TextColumns columns_;
  std::string source_;
};

// protobuf's errors in our words, the first one thrown and the rest as its details.
class ErrorList : public google::protobuf::io::ErrorCollector {
 public:
  ErrorList(const Places& places, const SchemaPool& schema) : places_(places), schema_(schema) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override;
  [[noreturn]] void Throw() const;

 private:
  const Places& places_;
  const SchemaPool& schema_;
  std::string first_, rest_;
  int count_ = 0;
};

// One message of the text with the places of its fields, for errors about values.
class JobNode {
 public:
  using Message = google::protobuf::Message;
  using Tree = google::protobuf::TextFormat::ParseInfoTree;

  JobNode(const Message& message, Tree* tree, const Places& places)
      : JobNode(message, tree, places, places.source()) {}

  [[noreturn]] void Fail(const std::string& field, const std::string& what, int index = -1) const;
  [[noreturn]] void FailHere(const std::string& what) const;

  // A field that is a message, and one of several. Errors about the whole of it are placed at it.
  JobNode Child(const std::string& field, int index = -1) const;

  // The one of the kinds that is given; "" when none is.
  std::string Kind() const;
  // Throws where none is given, telling what there is.
  std::string RequireKind(const char* what) const;

  const std::string& where() const { return where_; }  // its place
  // The place of one value of a field; its own when it is not known, or there is no such field.
  std::string Place(const std::string& field, int index = -1) const;
  bool Has(const std::string& field) const;
  int Count(const std::string& field) const;  // of a field that holds several
  std::vector<std::string> FieldNames() const;
  // The values of a field, or its default.
  Attribute Value(const std::string& field) const;
  template <class T>
  T Get(const std::string& field) const {
    return AttributeAs<T>(Value(field));
  }
  // The fields that are given and hold no messages.
  Setting Given(const std::string& kind) const;
  // Throws for a number out of range among the fields that are given, as Read does.
  void CheckGiven(const FieldTable& fields, const std::string& who) const;
  // The options that a text gives by the fields of the table. Throws for a number out of range:
  // "PLACE: WHO: FIELD must be positive, got 0".
  template <class Options>
  Options Read(const Fields<Options>& fields, const std::string& who = "") const {
    const Options options = fields.Read(where_, Known(fields));
    CheckRanges(fields, who, &options);
    return options;
  }
  void Need(const std::string& parent, std::initializer_list<const char*> fields) const;

  // The place of every field that the text gives, by its path: "loss", "metric[0].var",
  // "train.csv.file".
  std::map<std::string, std::string> AllPlaces() const;

 private:
  JobNode(const Message& message, Tree* tree, const Places& places, std::string where)
      : message_(message), tree_(tree), places_(places), where_(std::move(where)) {}
  Setting Known(const FieldTable& fields) const;
  void CheckRanges(const FieldTable& fields, const std::string& who, const void* options) const;
  void Collect(const std::string& path, std::map<std::string, std::string>* places) const;
  const google::protobuf::FieldDescriptor* Find(const std::string& field) const {
    return message_.GetDescriptor()->FindFieldByName(field);
  }
  int Index(const std::string& field, int index) const;

  const Message& message_;
  Tree* tree_;
  const Places& places_;
  std::string where_;
};

}  // namespace coracle
