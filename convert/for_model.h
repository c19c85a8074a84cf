#pragma once
// The border of every function that reads, imports or writes a model of another format.

#include <coracle/framework/base/memory_errors.h>
#include <coracle/framework/base/text.h>

#include <string>
#include <utility>

namespace coracle::inline internal {

// Calls f, which works on the model `source` (a path or a name). If the system cannot provide
// memory, an Error with that name says so.
template <class F>
decltype(auto) ForModel(const std::string& source, F&& f) {
  return TranslateMemoryErrors(std::forward<F>(f),
                               [&] { return "the model " + Quote(source, 300); });
}

}  // namespace coracle::inline internal
