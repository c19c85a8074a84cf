#pragma once
// Turns the standard library's errors for lack of memory into OutOfMemory, at the border of calls
// that have no op to name.

#include <coracle/framework/base/resource_limits.h>

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace coracle::inline internal {

// Calls f. `what()` is what the memory is for: "a run of the program".
template <class F, class What>
decltype(auto) TranslateMemoryErrors(F&& f, What&& what) {
  try {
    return std::forward<F>(f)();
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("the system cannot provide memory for " + std::string(what()));
  } catch (const std::length_error&) {
    throw OutOfMemory("a list would be too long in " + std::string(what()));
  }
}

}  // namespace coracle::inline internal
