#pragma once
// Places in a job text: the line and column of a field, for errors.

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

// Converts places from protobuf (lines and columns from 0, a tab goes to the next multiple of 8) to
// the numbers that an editor shows.
class Places {
 public:
  Places(std::string_view text, const std::string& source);

  const std::string& source() const { return source_; }

  // "file:line:column". protobuf reports a bad field at a place after its name; with `name`,
  // returns the place where the name begins.
  std::string At(int line, int column, const std::string& name = "") const;
  // The innermost brace that is open before the field: "fc at file:2:9", or "" if there is none.
  std::string OpenBrace(int line, int column, const std::string& name) const;

 private:
  // The offset of the place in the text, or of `name` before it in the same line.
  size_t OffsetAt(int line, int column, const std::string& name) const;

  std::string text_;
  TextColumns columns_;
  std::string source_;
};

// Collects protobuf's errors, reworded: the first one is thrown, the others become its details.
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

// One message of the text, with the places of its fields for errors about values.
class JobNode {
 public:
  using Message = google::protobuf::Message;
  using Tree = google::protobuf::TextFormat::ParseInfoTree;

  JobNode(const Message& message, Tree* tree, const Places& places)
      : JobNode(message, tree, places, places.source()) {}

  [[noreturn]] void Fail(const std::string& field, const std::string& what, int index = -1) const;
  [[noreturn]] void FailHere(const std::string& what) const;

  // Returns a field that is a message; `index` selects one of several. Errors about the whole
  // message have its place.
  JobNode Child(const std::string& field, int index = -1) const;

  // The name of the kind that is given; "" if none is given.
  std::string Kind() const;
  // Like Kind, but throws an error that lists the kinds if none is given.
  std::string RequireKind(const char* what) const;

  const std::string& where() const { return where_; }  // the message's place
  // The place of one value of a field. Returns the message's place if the field's is unknown.
  std::string Place(const std::string& field, int index = -1) const;
  bool Has(const std::string& field) const;
  int Count(const std::string& field) const;  // number of values of a repeated field
  std::vector<std::string> FieldNames() const;
  // The value of a field, or its default.
  Attribute Value(const std::string& field) const;
  template <class T>
  T Get(const std::string& field) const {
    return AttributeAs<T>(Value(field));
  }
  // The given fields that are not messages.
  Setting Given(const std::string& kind) const;
  // Throws for a given number that is out of range, as Read does.
  void CheckGiven(const FieldTable& fields, const std::string& who) const;
  // Reads the options from the fields of the table. Throws for a number out of range: "PLACE: WHO:
  // FIELD must be positive, got 0".
  template <class Options>
  Options Read(const Fields<Options>& fields, const std::string& who = "") const {
    const Options options = fields.Read(where_, Known(fields));
    CheckRanges(fields, who, &options);
    return options;
  }
  void Need(const std::string& parent, std::initializer_list<const char*> fields) const;

  // The place of every given field by its path: "loss", "metric[0].var", "train.csv.file".
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
