#pragma once
// Writes Coracle's values as JSON. Not a public header, because it includes nlohmann's.
// docs/json.md describes the output of the commands.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/var.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace coracle::inline internal {

using Json = nlohmann::ordered_json;

// Makes the first members of every document: {"format": "coracle.KIND", "version": 1}.
Json JsonDocument(const std::string& kind);
// The document as indented text with a line end.
std::string JsonText(const Json& document);
// The value on one line, without a line end.
std::string JsonLine(const Json& value);

// Text for JSON: bytes that are not UTF-8 become \xNN, so that different names stay different.
Json JsonString(std::string_view text);
// A number with the fewest digits that identify it; nan and infinities are "nan", "inf", "-inf".
Json JsonNumber(double value);
Json JsonNumber(float value);
// Beyond 2^53, text with the digits, because readers that use doubles would round the number.
Json JsonNumber(int64_t value);
Json JsonShape(const Shape& shape);  // [-1, 3]

// Numbers, texts, bools and lists are unchanged; other kinds are {"block": 1}, {"var": "x"}, {"re":
// 1, "im": 2}; an attr of an unknown kind is {"bytes": "0a1b"}.
Json JsonAttribute(const Attribute& attribute);
Json JsonSetting(const Setting& setting);  // {"kind": "l2_decay", "attrs": {"coeff": 0.25}}

// Adds a member to an object without searching for its name, so that adding many members takes
// linear time. The name must be new.
void AddMember(Json& object, std::string_view name, Json value);

}  // namespace coracle::inline internal
