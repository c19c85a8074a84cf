#pragma once
// Fields of a program's file that are not Paddle's.

#include <string>
#include <string_view>

namespace coracle {

// Fields of a message that were kept unread (unknown_fields() of programs, blocks and ops), without
// the extensions: those numbered 1000 and more, which framework.proto leaves to others than Paddle.
std::string WithoutExtensions(std::string_view fields);

}  // namespace coracle
