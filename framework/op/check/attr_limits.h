#pragma once
// Checks attr values against their declaration: the type, and the limits of OpDef::Range
// and OpDef::OneOf.

#include <coracle/framework/op/op_def.h>

#include <string>

namespace coracle::inline internal {

// Converts the value to the attr's type; returns false if that is impossible. A text attr whose
// default is a number also accepts a number: the tolerances of allclose are texts, and were floats
// in older files.
bool ConvertAttr(const AttrDef& def, const Attribute& value, Attribute* converted);

// The limit that a value of the attr's type violates: "be at least 1, got 0"; "" if none.
std::string ViolatedLimit(const AttrDef& def, const Attribute& value);

// Throws kInvalidArgument if an attr of the op is outside its limits. Attrs of a wrong type are
// left to their readers.
void RequireLimits(const OpSpec& spec, const OpDesc& op);

// The value as text, shortened if it is long.
std::string BriefValue(const Attribute& value);

}  // namespace coracle::inline internal
