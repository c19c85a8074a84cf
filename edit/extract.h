#pragma once
// ExtractProgram: the part of a program that computes some variables from others.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle {

struct ExtractOptions {
  // Variables of the root block that the part is fed with. None: those of the program's own inputs
  // that the outputs depend on. An input that an op computes stands for its last value; one that
  // has a value before the first op, for that value.
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};  // what the part yields; at least one
};

struct ExtractedProgram {
  ProgramDesc program;  // with feed and fetch ops for inputs and outputs, in their order
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> unused_inputs;  // given, but no output depends on them
};

// A program of the ops that the outputs depend on, with their sub-blocks, parameters and other
// variables under the names that they had, so that random ops draw what they drew. Blocks that no
// op runs any more are removed, or are left empty where later blocks draw random numbers, which
// depend on a block's index (but where a call of a function is left out, blocks in functions that
// are still called may draw other numbers). An op is left out if all that it writes is overwritten
// before it is read. Outputs of selected rows are fetched as dense copies, under new names. Linear
// in the size of the program.
//
// Throws kNotFound for a name that the root block lacks; kInvalidArgument where an output depends
// on a variable that is neither computed nor among the inputs (the details show the path from it to
// the output), where ops that are needed also read an earlier value of an input or write it, and
// for variables that cannot be fed or fetched.
ExtractedProgram ExtractProgram(const ProgramDesc& program, const ExtractOptions& options,
                                const OpRegistry& ops);

}  // namespace coracle
