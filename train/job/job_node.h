#pragma once
// Messages of a job text, with the places of their fields for errors about values.

#include <coracle/framework/ir/fields.h>
#include <coracle/layers/internal/text_parse.h>

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace coracle::inline internal {

class JobNode {
 public:
  explicit JobNode(Node node) : node_(std::move(node)) {}

  // Throw kInvalidArgument: "PLACE: FIELD WHAT", "PLACE: WHAT".
  [[noreturn]] void Fail(const std::string& field, const std::string& what, int index = -1) const;
  [[noreturn]] void FailHere(const std::string& what) const;

  // Returns a field that is a message; `index` selects one of several. Errors about the whole
  // message have its place.
  JobNode Child(const std::string& field, int index = -1) const {
    return JobNode(node_.Child(field.c_str(), index < 0 ? 0 : index));
  }

  // The name of the kind that is given; "" if none is given.
  std::string Kind() const;
  // Like Kind, but throws an error that lists the kinds if none is given.
  std::string RequireKind(const char* what) const;

  const std::string& where() const { return node_.where(); }  // the message's place
  // The place of one value of a field. Returns the message's place if the field's is unknown.
  std::string Place(const std::string& field, int index = -1) const;
  bool Has(const std::string& field) const { return node_.Has(field.c_str()); }
  int Count(const std::string& field) const { return node_.Count(field.c_str()); }
  std::vector<std::string> FieldNames() const { return coracle::FieldNames(node_.type()); }
  // The value of a field, or its default.
  Attribute Value(const std::string& field) const {
    return node_.Value(node_.Field(field.c_str()));
  }
  template <class T>
  T Get(const std::string& field) const {
    return AttributeAs<T>(Value(field));
  }
  // The given fields that are not messages.
  Setting Given(const std::string& kind) const;
  // Throws if a given number is out of its range: "PLACE: WHO: FIELD must be positive, got 0".
  void CheckRange(const FieldSpec& field, const std::string& who) const;
  // Throws if one of the fields is missing: "PLACE: PARENT needs FIELD".
  void Need(const std::string& parent, std::initializer_list<const char*> fields) const;

  // The place of every given field by its path: "loss", "metric[0].var", "train.csv.file"; "" is
  // the beginning of the text.
  std::map<std::string, std::string> AllPlaces() const;

 private:
  void Collect(const std::string& path, std::map<std::string, std::string>* places) const;

  Node node_;
};

}  // namespace coracle::inline internal
