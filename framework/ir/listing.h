#pragma once
// Parts of PrintProgram's output, for other code that displays programs.

#include <coracle/framework/ir/op.h>

#include <string>
#include <string_view>

namespace coracle::inline internal {

// A name as a listing shows it: quoted and escaped (Quote) unless it is plain.
std::string NameText(std::string_view name);

// The value of an attr, with long lists and texts shortened.
std::string AttrText(const Attribute& attribute);

// "by_value(max=2, min=-1)".
std::string SettingText(const Setting& setting);

}  // namespace coracle::inline internal
