#pragma once
// Fields of a program's file that Coracle adds to Paddle's format.

#include <string>
#include <string_view>

namespace coracle::inline internal {

// Removes the extensions, the fields numbered 1000 and more, from fields that were kept unread
// (FileFields::Unknown of programs, blocks and ops). framework.proto reserves these numbers for
// others than Paddle.
std::string WithoutExtensions(std::string_view fields);

}  // namespace coracle::inline internal
