#pragma once
// Models as commands that change them read and write them: a program, with the values of its
// persistable variables where they are at hand.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>

namespace coracle::tools {

struct ModelFiles {
  ProgramDesc program;
  Scope values;
  bool has_values = false;
  std::vector<std::string> read;  // the files that they come from
};

// Reads PROGRAM, and its parameters from `params`, a directory or a combined file; where that is
// "", from beside the program, if they are there.
ModelFiles ReadModel(const std::string& path, const std::string& params);

// Where readers look for the parameters of the program file; "": nowhere.
std::string ParametersFileOf(const std::string& program_file);

// Throws UsageError unless --out is given and names a program file, and --save_params is "" or
// names a parameter file.
void CheckModelFlags();

// Writes the program to --out, and its parameters to --save_params; unless that is given, to
// NAME.pdiparams beside a NAME.pdmodel, and to __params__ beside a __model__, if it has values.
// Returns a line for each file, "" if the program goes to standard output. Throws, before anything
// is written, where values are asked for that there are not, where parameters of another program
// would come to lie beside this one, and where a file would be overwritten that was read.
std::string WriteModel(const ModelFiles& model);

// Where WriteModel writes the parameters of a program that has them; "": nowhere.
std::string WrittenParameters();

// Throws UsageError if a file to be written is one of those read. The program and its parameters
// are two files: written over those that were read, they would not fit each other if the command
// ended between.
void RefuseOwnFiles(const std::vector<std::string>& read, const std::vector<std::string>& written);

// Throws where --out would come to lie beside parameters of another program, which readers would
// take for its own.
void RefuseForeignParameters();

// "inputs   x float32[-1, 3], y int64[-1]": a line, with a heading, for variables of the root
// block.
std::string DescribeVars(const std::string& heading, const ProgramDesc& program,
                         const std::vector<std::string>& names);

}  // namespace coracle::tools
