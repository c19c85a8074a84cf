#pragma once
// Upper and lower case of text in UTF-8, independent of the locale: the simple case mappings of
// Unicode 14, which map a character to one character (so the German sharp s stays as it is).
// Bytes that are not UTF-8 stay as they are.

#include <string>
#include <string_view>

namespace coracle::inline internal {

std::string ToLower(std::string_view text);
std::string ToUpper(std::string_view text);

}  // namespace coracle::inline internal
