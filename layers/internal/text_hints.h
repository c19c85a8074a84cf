#pragma once
// Hints about the intended meaning of a mistake in a text.

#include <google/protobuf/descriptor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// The name of a layer here, given its name in another library: "; here it is called fc" for
// "Linear"; "" if unknown.
std::string CalledElsewhere(std::string_view name);

// For an unknown layer or op: its name here, "; did you mean fc?", or a note that `coracle COMMAND`
// lists the known ones and --op_library adds more.
std::string NameHint(const std::string& name, const std::vector<std::string>& known,
                     std::string_view command);

// A brace that is open at some place in a text.
struct OpenBrace {
  size_t offset = 0;  // position of the name before it
  std::string of;     // that name, "" if there is none
};
// The innermost brace that is open at `end`, ignoring strings and comments.
std::optional<OpenBrace> OpenBraceBefore(std::string_view text, size_t end);
// Whether the field belongs to the outermost message and not to `type`, where it was found: an
// earlier brace is probably not closed.
bool IsOfRootAlone(const google::protobuf::Descriptor& root,
                   const google::protobuf::Descriptor& type, const std::string& name);

// The `n`-th text in double quotes of an error of protobuf's parser; "" if there is none.
std::string QuotedIn(const std::string& message, int n);
// An error of protobuf's parser in lower case and without a full stop.
std::string TidyMessage(std::string message);

// For a field that a message does not have: "; did you mean size?", its name here if other
// libraries use the given one, or the list of fields. For a choice of kinds, also mentions
// --op_library, which adds more.
std::string FieldHint(const google::protobuf::Descriptor& type, const std::string& name);

}  // namespace coracle::inline internal
