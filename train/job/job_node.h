#pragma once
// Places in a job text: which line and column a field stands at, for errors.

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

// From protobuf's places (lines and columns from 0, a tab to the next multiple of 8) to an
// editor's.
class Places {
 public:
  Places(std::string_view text, const std::string& source);

  const std::string& source() const { return source_; }

  // "file:line:column". protobuf notices a bad field past its name: with `name`, the place is where
  // that begins.
  std::string At(int line, int column, const std::string& name = "") const;

 private:
  std::vector<std::string> lines_;
  std::string source_;
};

// protobuf's errors in our words, the first one thrown and the rest as its details.
class ErrorList : public google::protobuf::io::ErrorCollector {
 public:
  explicit ErrorList(const Places& places) : places_(places) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override;
  [[noreturn]] void Throw() const;

 private:
  const Places& places_;
  std::string first_, rest_;
  int count_ = 0;
};

// One message of the text with the places of its fields, for errors about values.
class JobNode {
 public:
  using Message = google::protobuf::Message;
  using Tree = google::protobuf::TextFormat::ParseInfoTree;

  JobNode(const Message& message, Tree* tree, const Places& places)
      : message_(message), tree_(tree), places_(places), where_(places.source()) {}

  [[noreturn]] void Fail(const std::string& field, const std::string& what, int index = -1) const;
  [[noreturn]] void FailHere(const std::string& what) const;

  // A field that is a message.
  JobNode Sub(const std::string& field, const Message& message, int index = -1) const;
  // The same, with errors about the whole of it placed at `field` of its parent.
  JobNode At(const JobNode& parent, const std::string& field, int index = -1) const;

  const std::string& where() const { return where_; }  // its place
  bool Has(const std::string& field) const;
  void Need(const std::string& parent, std::initializer_list<const char*> fields) const;
  void AtLeast(const std::string& field, int64_t value, int64_t least) const;
  void InRange(const std::string& field, double value, double low, double high) const;

  // The place of every field that the text gives, by its path: "loss", "metric[0].var",
  // "train.csv.file".
  std::map<std::string, std::string> AllPlaces() const;

 private:
  void Collect(const std::string& path, std::map<std::string, std::string>* places) const;
  const google::protobuf::FieldDescriptor* Find(const std::string& field) const {
    return message_.GetDescriptor()->FindFieldByName(field);
  }
  int Index(const std::string& field, int index) const;
  std::string Place(const std::string& field, int index) const;

  const Message& message_;
  Tree* tree_;
  const Places& places_;
  std::string where_;
};

}  // namespace coracle
