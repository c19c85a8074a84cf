#pragma once
// What the declaration of an attr says of its values: their type, and the limits of OpDef::Range
// and OpDef::OneOf.

#include <coracle/framework/op/op_spec.h>

#include <string>

namespace coracle {

// The value as one of the attr's type; false if it is none. A text whose default is a number takes
// a number too: the tolerances of allclose are texts, and were floats in older files.
bool ConvertAttr(const AttrDef& def, const Attribute& value, Attribute* converted);

// Which limit a value of the attr's type violates: "be at least 1, got 0"; "" for none.
std::string ViolatedLimit(const AttrDef& def, const Attribute& value);

// Throws kInvalidArgument if an attr of the op lies outside of its limits. Attrs of a wrong type
// are left to whoever reads them.
void RequireLimits(const OpSpec& spec, const OpDesc& op);

// The value as text, shortened if it is long.
std::string BriefValue(const Attribute& value);

}  // namespace coracle
