#pragma once
// The error of a write to a pipe that its reader has closed.

#include <coracle/framework/base/error.h>

namespace coracle::inline internal {

// WithPrefix and WithDetail return a plain Error.
class BrokenPipe : public Error {
 public:
  using Error::Error;
};

}  // namespace coracle::inline internal
