#pragma once
// Adds the place in a text to errors.

#include <coracle/framework/base/error.h>

#include <string>

namespace coracle::inline internal {

// Runs f and prefixes its errors with the place, unless that is "".
template <class F>
auto AtPlace(const std::string& place, F f) {
  try {
    return f();
  } catch (const Error& e) {
    if (place.empty()) throw;
    throw e.WithPrefix(place);
  }
}

}  // namespace coracle::inline internal
