#include <coracle/framework/base/error.h>
#include <coracle/framework/ir/field_places.h>

namespace coracle::inline internal {

std::string FieldPlaces::PathOf(const std::string& field, int index) const {
  std::string path = path_;
  if (!path.empty() && !field.empty()) path += '.';
  path += field;
  return index < 0 ? path : path + "[" + std::to_string(index) + "]";
}

const std::string* FieldPlaces::Find(const std::string& field, int index) const {
  for (const std::string& path : {PathOf(field, index), PathOf(field, 0)}) {
    if (const auto found = places_->find(path); found != places_->end()) return &found->second;
  }
  return nullptr;
}

FieldPlaces FieldPlaces::Child(const std::string& field, int index) const {
  return FieldPlaces(*places_, PathOf(field, index));
}

bool FieldPlaces::Has(const std::string& field) const { return Find(field, -1) != nullptr; }

const std::string& FieldPlaces::Place(const std::string& field, int index) const {
  static const std::string unknown = "job";
  if (const std::string* place = Find(field, index)) return *place;
  if (const std::string* here = Find("", -1)) return *here;
  const auto begin = places_->find("");
  return begin == places_->end() ? unknown : begin->second;
}

void FieldPlaces::Fail(const std::string& field, const std::string& what, int index) const {
  ThrowInvalid(Place(field, index) + ": " + field.substr(field.rfind('.') + 1) + " " + what);
}

void FieldPlaces::FailHere(const std::string& what) const { ThrowInvalid(Place("") + ": " + what); }

}  // namespace coracle::inline internal
