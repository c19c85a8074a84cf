#pragma once
// Drawn values for a program that is run to see how long it takes: feeds, and parameters where no
// file gives any. The same for the same program: they depend on names and shapes alone.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

// Rows of one sequence, where neither a shape nor a file says how long sequences are.
inline constexpr int64_t kDrawnSequence = 8;

// The variable's shape, the first dim of which is `batch_size` if it is not known; if the variable
// has a lod_level, that many sequences of kDrawnSequence rows. Other dims stay as they are.
Shape DrawnShape(const VarDesc& var, int64_t batch_size);

// A value for the variable `name` of the root block, of that shape, whose dims are known. Floating
// points lie in [0, 1); integers from 0 up to what DrawnIdLimit allows. A variable with a lod_level
// gets a LoD of `sequences` outermost sequences, whose lengths differ by one at most; levels below
// the first have two sequences in each. Throws kNotFound for an unknown name, kInvalidArgument for
// more than eight levels, OutOfMemory.
Tensor DrawFeed(const ProgramDesc& program, const std::string& name, const Shape& shape,
                int64_t sequences = 1);

// One more than the largest integer that the ops which read the variable surely take: the height of
// a table that they look it up in, the number of classes of a label; 2 where they do not tell.
int64_t DrawnIdLimit(const ProgramDesc& program, const std::string& name);

// Sets the persistable tensors of the root block that `scope` lacks: matrices and filters to
// numbers around 0 that keep what they multiply in its range, vectors to numbers in [0.5, 1.5),
// integers, learning rates and the state of optimizers to 0. Returns their names. Throws
// kInvalidArgument for an unknown dim of one that ops read, OutOfMemory.
std::vector<std::string> DrawMissingParameters(const ProgramDesc& program, Scope& scope);

}  // namespace coracle
