#pragma once
// The help of a schema: descriptions and examples of its messages and fields.

#include <coracle/layers/internal/schema_writer.h>
#include <coracle/layers/text_help.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// The declaration of `type`, without an example.
TextEntry EntryOf(const SchemaPool& schema, const google::protobuf::Descriptor& type,
                  std::string kind, std::string name);

// The field at "ROOT.a.b", where ROOT is the name of the message that a text holds, with an example
// that begins at the outermost message. Throws kNotFound, suggesting the nearest name.
TextEntry EntryAt(const SchemaPool& schema, std::string_view path);
std::vector<std::string> FieldsBelow(const SchemaPool& schema, std::string_view path);

// A value that the field accepts, as a text gives it. `index` selects among different values.
std::string ExampleValue(AttrType type, const std::optional<FieldRange>& range, size_t index);

}  // namespace coracle::inline internal
