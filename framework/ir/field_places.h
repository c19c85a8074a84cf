#pragma once
// FieldPlaces: the fields that a text gives, with their places, for the rules of field tables.

#include <map>
#include <string>

namespace coracle::inline internal {

// The given fields of one message of a text. Paths lead to fields and to fields of fields:
// "file", "early_stop.metric".
class FieldPlaces {
 public:
  // The place ("job.pbtxt:3:14") of each given field of the whole text by its path, such as
  // "train.csv.file" and "metric[0].var"; "" is the beginning of the text.
  using Map = std::map<std::string, std::string>;

  // `path` leads to the message: "train.csv". The map must outlive the object.
  explicit FieldPlaces(const Map& places, std::string path = "")
      : places_(&places), path_(std::move(path)) {}

  FieldPlaces Child(const std::string& field, int index = -1) const;
  bool Has(const std::string& field) const;
  // The place of a field, or of one of its values. If the text does not give it, the place of
  // the message.
  const std::string& Place(const std::string& field, int index = -1) const;
  // Throws kInvalidArgument: "PLACE: FIELD WHAT".
  [[noreturn]] void Fail(const std::string& field, const std::string& what, int index = -1) const;
  // Throws kInvalidArgument: "PLACE: WHAT", with the place of the message.
  [[noreturn]] void FailHere(const std::string& what) const;

 private:
  std::string PathOf(const std::string& field, int index) const;
  const std::string* Find(const std::string& field, int index) const;

  const Map* places_;
  std::string path_;
};

}  // namespace coracle::inline internal
