#pragma once
// Writes the shapes that the ops of a program compute from other shapes as attrs, so that shape
// rules see them. Internal to Coracle.

#include <coracle/edit/edit.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

struct WrittenShapes {
  ProgramDesc program;
  // Dim 0 of these variables must be equal in each run. Otherwise the shapes are wrong.
  std::vector<std::string> equal_dims;
};

// A copy of the program whose inputs are declared with these shapes (-1: unknown), and in which the
// types of all other variables of the root block are inferred. A reshape to a shape that ops make
// of constants and of the shapes of variables has an attr instead, if at most one dimension is left
// to infer: dimensions of its own input are copied (0), and so is dim 0 of another variable at the
// first place, which then is in equal_dims with the input. A single unknown dimension becomes -1.
//
// For inputs of these shapes with elements, the copy computes what `program` computes, provided
// that the program succeeds: a reshape that succeeds has the only dimension that fits. `constants`
// has the values of persistable variables, which no op may write. Throws the error of a shape rule
// that does not accept the shapes. A program with sub-blocks keeps its shapes as they are.
WrittenShapes WriteShapes(const ProgramDesc& program, const InputShapes& inputs,
                          const Scope& constants, const OpRegistry& ops);

}  // namespace coracle::inline internal
