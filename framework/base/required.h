#pragma once
// Checks of arguments that must not be null: pointers and functions.

#include <coracle/framework/base/error.h>

#include <string>

namespace coracle::inline internal {

// What `pointer` points to. Throws kInvalidArgument "WHAT is a null pointer".
template <class T>
T& Required(T* pointer, const char* what) {
  if (!pointer) ThrowInvalid(std::string(what) + " is a null pointer");
  return *pointer;
}

// Throws kInvalidArgument "WHAT is an empty function" for a std::function without a target, or a
// null pointer to a function.
template <class Function>
void RequireFunction(const Function& function, const std::string& what) {
  if (!function) ThrowInvalid(what + " is an empty function");
}

}  // namespace coracle::inline internal
