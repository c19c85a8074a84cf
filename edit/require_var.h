#pragma once
// Finds a variable that a user named. Internal to Coracle.

#include <coracle/framework/ir/program.h>

#include <string>

namespace coracle::inline internal {

// The variable of the root block. Throws kNotFound that suggests the nearest name. `who` begins the
// message: "extract: inputs".
const VarDesc& RequireVar(const ProgramDesc& program, const std::string& name,
                          const std::string& who);

}  // namespace coracle::inline internal
