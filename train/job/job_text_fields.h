#pragma once
// The fields of a protobuf text with the places of their bytes, for changes of a text that keep the
// rest of it.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// A field: "name: value", "name { ... }" or "name: [ ... ]". Places are offsets in the text.
struct JobTextField {
  std::string name;
  size_t begin = 0, value = 0, end = 0;  // of the name; of the value; behind the value
  bool message = false;
  std::vector<JobTextField> entries;  // of a message

  size_t Inside() const { return value + 1; }  // of a message: the place after its brace
};

// The fields of a text that protobuf's parser accepts. For any other text, the result is a part of
// the fields.
std::vector<JobTextField> EntriesOf(std::string_view text);

}  // namespace coracle::inline internal
