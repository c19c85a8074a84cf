#pragma once
// The message of the error that a call ends in, "" when it ends in none.

#include <coracle/framework/base/error.h>

#include <functional>
#include <string>

namespace coracle {

inline std::string MessageOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace coracle
