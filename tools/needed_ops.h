#pragma once
// The ops that programs and their gradients need, for builds that have no others.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <set>
#include <string>
#include <vector>

namespace coracle::tools {

struct NeededOps {
  std::set<std::string> types;
  // Why a program's gradients are not among them: "of 'm.pdmodel': op argmax has no gradient".
  std::vector<std::string> without_gradients;
};

// Adds the ops of a program, of its gradients with respect to its parameters and inputs, and those
// that the compiler makes of both. `scope` has the parameters; others are zeros. Throws kNotFound
// for a type that the registry lacks, and the errors of compiling. `source` names the program.
void AddNeededOps(const ProgramDesc& program, Scope scope, const std::string& source,
                  NeededOps* needed);

std::string TextOfNeededOps(const NeededOps& needed);  // a type a line
std::string JsonOfNeededOps(
    const NeededOps& needed);  // with all types of their files, and all other types

}  // namespace coracle::tools
