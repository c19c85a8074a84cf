#pragma once
// ExtractProgram: extracts the part of a program that computes some variables from others.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle {

struct ExtractOptions {
  // Variables of the root block that are the inputs of the part. Empty: the program's own
  // inputs that the outputs depend on. An input that an op computes means its last value; an input
  // that has a value before the first op means that value.
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};  // what the part computes; at least one
};

struct ExtractedProgram {
  ProgramDesc program;  // has feed and fetch ops for inputs and outputs, in their order
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> unused_inputs;  // given, but no output depends on them
};

// Makes a program of the ops that the outputs depend on, with their sub-blocks, parameters and
// other variables. Names do not change, so random ops draw the same numbers. Removes blocks that
// no op runs any more, but leaves them empty if later blocks draw random numbers, which depend on
// a block's index. (If a call of a function is dropped, blocks in functions that are still called
// may draw other numbers.) Drops an op if all its outputs are overwritten before they are read.
// Fetches outputs that are selected rows as dense copies, under new names. Linear in the size of
// the program.
//
// Throws kNotFound for a name that the root block lacks. Throws kInvalidArgument if an output
// depends on a variable that is neither computed nor an input (the details show the path from it to
// the output), if needed ops read an earlier value of an input or write it, and for variables that
// cannot be fed or fetched.
ExtractedProgram ExtractProgram(const ProgramDesc& program, const ExtractOptions& options,
                                const OpRegistry& ops);

}  // namespace coracle
