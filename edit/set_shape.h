#pragma once
// Changes the shapes of a program's inputs and infers the shapes of all other variables.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

using InputShapes = std::vector<std::pair<std::string, Shape>>;

// Declares inputs with these shapes (-1: unknown) and runs the shape rules of all ops again, so
// that the other variables get the resulting types. Visits a sub-block where an op runs it; a
// dimension that differs between the rounds of a loop, or the calls of a function, becomes -1.
// Persistable variables keep their shapes. Linear in the size of the program, except for loops
// whose shapes change.
//
// Throws the error of an op's shape rule that does not accept the shapes, kNotFound for a name that
// the root block lacks, kInvalidArgument for a variable that is not a dense tensor, is persistable
// or is written by an op that is not a feed op, and the errors of VerifyOrThrow. If it throws, the
// program does not change.
void DeclareShapes(ProgramDesc& program, const InputShapes& shapes, const OpRegistry& ops);

// The same for shapes that the program may be fed. Also throws kInvalidArgument, without changing
// the program, for a shape that a variable with need_check_feed does not allow.
void SetShapes(ProgramDesc& program, const InputShapes& shapes, const OpRegistry& ops);

}  // namespace coracle
