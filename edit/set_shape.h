#pragma once
// Other shapes for what a program is fed.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

// Gives variables of the root block the shapes (-1 stands for an unknown dim), and all other
// variables of the block what follows from them by the ops' shape rules. Throws kNotFound for a
// variable that the block does not have; kInvalidArgument for a shape that a variable with
// need_check_feed does not admit, and what Verify and the shape rules throw.
void SetShapes(ProgramDesc& program, const std::vector<std::pair<std::string, Shape>>& shapes,
               const OpRegistry& ops);

}  // namespace coracle
