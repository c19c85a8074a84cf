#pragma once
// Declared here and not in pass.h, which all tests are compiled with.

#include <coracle/passes/pass.h>

namespace coracle {

// In the root block, moves updates to directly behind the last op that they must follow: the one
// that completes the gradient, or the last one that reads the parameter's old value. An update is
// an op of the role Optimize that reads and writes a persistable variable and reads a temporary.
// The ops of that role, or of a learning-rate schedule, that it depends on (decay, a clip of this
// gradient alone) go with it. Nothing moves before an op with side effects, and what would stay
// behind all backward ops anyhow does not move at all.
void UpdateEarly(ProgramDesc& program, const PassContext& context);

}  // namespace coracle
