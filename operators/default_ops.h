#pragma once
// The registry of all ops that come with Coracle.

#include <coracle/framework/op/op_registry.h>

namespace coracle {

// Process-wide. Own ops may be added to it before programs are verified or compiled with it (Add is
// not synchronised with readers); a copy of one's own serves as well wherever a registry is a
// parameter.
OpRegistry& DefaultOps();

}  // namespace coracle
