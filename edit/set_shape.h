#pragma once
// Other shapes for what a program is fed, and all that follows from them.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

using InputShapes = std::vector<std::pair<std::string, Shape>>;

// Declares inputs with these shapes (-1: not known) and runs the shape rules of all ops again, so
// that the other variables get the types that follow. A sub-block is visited where an op runs it; a
// dimension that differs between the rounds of a loop, or the calls of a function, becomes -1.
// Persistable variables keep their shapes. Linear in the size of the program, but for loops whose
// shapes change.
//
// Throws what the shape rule of an op throws that cannot take the shapes, kNotFound for a name that
// the root block lacks, kInvalidArgument for a variable that is no dense tensor, is persistable or
// is written by an op that is no feed op, and what VerifyOrThrow throws for the program. A program
// stays as it was if one of them throws.
void DeclareShapes(ProgramDesc& program, const InputShapes& shapes, const OpRegistry& ops);

// The same for shapes that the program may be fed with: throws kInvalidArgument too for a shape
// that a variable with need_check_feed does not admit, and leaves the program as it was.
void SetShapes(ProgramDesc& program, const InputShapes& shapes, const OpRegistry& ops);

}  // namespace coracle
