#pragma once
// How Coracle's values are written as JSON. Not a public header: it includes nlohmann's.
// docs/json.md describes what the commands print.

#include <coracle/framework/ir/attribute.h>
#include <coracle/framework/ir/var.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace coracle {

using Json = nlohmann::ordered_json;

// The first members of every document: {"format": "coracle.KIND", "version": 1}.
Json JsonDocument(const std::string& kind);
// The document as text, indented, with a line end.
std::string JsonText(const Json& document);
// On one line, without a line end.
std::string JsonLine(const Json& value);

// Text as JSON can hold it: what is not UTF-8 becomes \xNN, so that different names stay different.
Json JsonString(std::string_view text);
// A number with the fewest digits that give it again; nan and infinities are "nan", "inf", "-inf".
Json JsonNumber(double value);
Json JsonNumber(float value);
// Past 2^53, where readers that know doubles only would round it, the digits as text.
Json JsonNumber(int64_t value);
Json JsonShape(const Shape& shape);  // [-1, 3]

// Numbers, texts, bools and lists as they are; {"block": 1}, {"var": "x"}, {"re": 1, "im": 2};
// {"bytes": "0a1b"} for an attr of a kind that this version does not know.
Json JsonAttribute(const Attribute& attribute);
Json JsonSetting(const Setting& setting);  // {"kind": "l2_decay", "attrs": {"coeff": 0.25}}

// Adds a member to an object without looking for its name: linear for any number of members, of
// which no two may have one name.
void AddMember(Json& object, std::string_view name, Json value);

}  // namespace coracle
