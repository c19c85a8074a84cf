#pragma once
// Hints on what a text for people may have meant.

#include <google/protobuf/descriptor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// What other libraries call a layer: "; here it is called fc" for "Linear", "" where nothing is
// known.
std::string CalledElsewhere(std::string_view name);

// For a layer or op that there is not: what it is called here, "; did you mean fc?", or that
// `coracle COMMAND` lists those that there are and --op_library brings more.
std::string NameHint(const std::string& name, const std::vector<std::string>& known,
                     std::string_view command);

// A brace that is open at some place of a text.
struct OpenBrace {
  size_t offset = 0;  // of the name before it
  std::string of;     // that name, "" if there is none
};
// The innermost one at `end`, without those in strings and comments.
std::optional<OpenBrace> OpenBraceBefore(std::string_view text, size_t end);
// Whether the field is one of the outermost message and not of `type`, where it is: a brace before
// it is probably not closed.
bool IsOfRootAlone(const google::protobuf::Descriptor& root,
                   const google::protobuf::Descriptor& type, const std::string& name);

// For a field that a message does not have: "; did you mean size?", what other libraries mean by
// it, or the fields that it has. A choice of kinds also names --op_library, which brings more.
std::string FieldHint(const google::protobuf::Descriptor& type, const std::string& name);

}  // namespace coracle
