#pragma once
// Errors about a part of a text.

#include <coracle/framework/base/error.h>

#include <string>

namespace coracle {

// Runs f; an error of it gets the place in front, unless that is "".
template <class F>
auto AtPlace(const std::string& place, F f) {
  try {
    return f();
  } catch (const Error& e) {
    if (place.empty()) throw;
    throw e.WithPrefix(place);
  }
}

}  // namespace coracle
