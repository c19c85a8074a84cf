#pragma once
// Requirements of layers with parameters on their inputs.

#include <coracle/framework/base/error.h>
#include <coracle/framework/ir/program.h>
#include <fmt/format.h>

namespace coracle::inline internal {

// Requires known dims of x where they determine the size of a parameter.
inline void RequireKnown(const char* layer, const Variable& x, int begin, int end) {
  for (int axis = begin; axis < end; ++axis) {
    if (x.shape()[axis] >= 0) continue;
    ThrowInvalid(fmt::format(
        "{}: dim {} of its input must be known to size the parameters, got {} of shape {}", layer,
        axis, x.name(), x.shape().ToString()));
  }
}

inline int64_t ProductFrom(const Shape& shape, int begin) {
  Shape rest;
  for (int axis = begin; axis < shape.rank(); ++axis) rest.Append(shape[axis]);
  return rest.numel();
}

}  // namespace coracle::inline internal
