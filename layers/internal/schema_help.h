#pragma once
// The help of a schema: its messages and fields in words, and examples of them.

#include <coracle/layers/internal/schema_writer.h>
#include <coracle/layers/text_help.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// What `type` declares, without an example.
TextEntry EntryOf(const SchemaPool& schema, const google::protobuf::Descriptor& type,
                  std::string kind, std::string name);

// The field at "ROOT.a.b", where ROOT stands for the message that a text holds, with an example
// that begins at the text's outermost message. Throws kNotFound with the nearest name.
TextEntry EntryAt(const SchemaPool& schema, std::string_view path);
std::vector<std::string> FieldsBelow(const SchemaPool& schema, std::string_view path);

// A text of the schema that holds a message of that type, by the shortest path to one; "" where
// nothing leads there.
std::string ExampleOf(const SchemaPool& schema, const google::protobuf::Descriptor& type);

// A value that the field takes, as a text gives it: `index` numbers several.
std::string ExampleValue(AttrType type, const std::optional<FieldRange>& range, size_t index);

}  // namespace coracle
