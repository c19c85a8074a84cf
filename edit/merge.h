#pragma once
// MergePrograms: two programs as one, the outputs of the first feed the second.

#include <coracle/edit/rename.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle {

struct MergeOptions {
  // (variable of the first program, input of the second). None: each input of the second program
  // and the output of the first that has its name; where names do not say, all outputs and inputs
  // in their order, if there are as many of them and their types match.
  NamePairs connections = {};
  // Goes before the names of the second program that the first one has too; again while such a
  // name is taken as well.
  std::string prefix = "b.";
};

struct MergedProgram {
  ProgramDesc program;
  NamePairs connections;
  NamePairs renamed;   // variables of the second program: (name there, name here)
  std::string prefix;  // that some of these got; "" when no name was taken
  // Of the feed and fetch ops: inputs of the first program, then those of the second that are not
  // connected; what the fetch ops of the first program yield and is not connected, then the outputs
  // of the second. Where a program has no feed (fetch) ops, what its ops read before they write it
  // (write, and none reads) counts.
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> notes;  // sentences on what the merged program does otherwise
};

// The ops of the first program, then those of the second, with the blocks of both. A connected
// input is replaced by the output, or becomes a copy of it where ops of the second program write
// it. Throws kInvalidArgument where connections are not clear or types contradict, kNotFound for
// unknown names, kAlreadyExists where an empty prefix does not tell names apart, and what
// VerifyOrThrow throws for the result. Linear in the size of the programs.
MergedProgram MergePrograms(const ProgramDesc& first, const ProgramDesc& second,
                            const OpRegistry& ops, const MergeOptions& options = {});

}  // namespace coracle
