#pragma once
// MergePrograms: merges two programs into one, in which outputs of the first feed the second.

#include <coracle/edit/rename.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle {

struct MergeOptions {
  // (variable of the first program, input of the second). Empty: pairs each input of the second
  // program with the output of the first that has its name; if that fails, pairs all outputs and
  // inputs in order, provided that their number and types match.
  NamePairs connections = {};
  // Prepended to names of the second program that the first one also has; repeatedly if such a name
  // exists too.
  std::string prefix = "b.";
};

struct MergedProgram {
  ProgramDesc program;
  NamePairs connections;
  NamePairs renamed;   // variables of the second program: (name there, name here)
  std::string prefix;  // the prefix that some of these got; "" if no name clashed
  // The feed and fetch ops. Inputs: all of the first program, then the unconnected ones of the
  // second. Outputs: the unconnected variables that the first program fetches, then the outputs of
  // the second. For a program without feed (fetch) ops, these are the variables that its ops read
  // before any op writes them (that ops write and none reads).
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> notes;  // sentences that describe how the merged program differs
};

// Appends the ops of the second program, and the blocks of both. A connected input is replaced by
// the output, or becomes a copy of it if ops of the second program write it. Throws
// kInvalidArgument if the connections are ambiguous or types do not match, kNotFound for unknown
// names, kAlreadyExists if names clash and the prefix is empty, and the errors of VerifyOrThrow for
// the result. Linear in the size of the programs.
MergedProgram MergePrograms(const ProgramDesc& first, const ProgramDesc& second,
                            const OpRegistry& ops, const MergeOptions& options = {});

}  // namespace coracle
