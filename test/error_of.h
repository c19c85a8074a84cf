#pragma once
// The message of the error that a call throws.

#include <coracle/framework/base/error.h>

#include <string>

namespace coracle {

// "no error" where f() throws none.
template <class F>
std::string ErrorOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

}  // namespace coracle
