#pragma once
// Random values for a program that is run to measure its speed: feeds, and parameters that no file
// provides. They depend only on names and shapes, so the same program gets the same values.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Rows of one sequence, if neither a shape nor a file says how long sequences are.
inline constexpr int64_t kDrawnSequence = 8;

// The variable's shape, with `batch_size` for an unknown first dim; if the variable has a
// lod_level, with that many sequences of kDrawnSequence rows. Other dims are kept.
Shape DrawnShape(const VarDesc& var, int64_t batch_size);

// Returns a value for the variable `name` of the root block with the given shape, whose dims must
// be known. Floating-point numbers are in [0, 1); integers range from 0 up to the limit of
// DrawnIdLimit; texts are keys of a table in which ops look them up, or words. A variable with a
// lod_level gets a LoD with `sequences` outermost sequences, whose lengths differ by at most one;
// at each lower level, every sequence has two parts. Throws kNotFound for an unknown name,
// kInvalidArgument for more than eight levels, and OutOfMemory.
Tensor DrawFeed(const ProgramDesc& program, const std::string& name, const Shape& shape,
                int64_t sequences = 1);

// One more than the largest integer that is valid for all ops that read the variable: the height of
// a table in which they look it up, or the number of classes of a label; 2 if the ops do not
// determine it.
int64_t DrawnIdLimit(const ProgramDesc& program, const std::string& name);

// Sets the persistable tensors of the root block that `scope` lacks: matrices and filters to
// numbers around 0 that preserve the range of the values they multiply, vectors to numbers in [0.5,
// 1.5), and integers, learning rates and the state of optimizers to 0. Returns their names. Throws
// kInvalidArgument for an unknown dim of a variable that ops read, and OutOfMemory.
std::vector<std::string> DrawMissingParameters(const ProgramDesc& program, Scope& scope);

}  // namespace coracle::inline internal
