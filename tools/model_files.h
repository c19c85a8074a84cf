#pragma once
// Reads and writes the models that commands change: a program and, if available, the values of its
// persistable variables.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/tools/flag_table.h>

#include <string>
#include <vector>

namespace coracle::tools {

// --out, --params and --save_params of a command that writes the model it has read.
struct ModelFlags {
  std::string out = {};
  std::string params = {};
  std::string save_params = {};
};
Fields<ModelFlags> ModelFields();

struct ModelFiles {
  ProgramDesc program;
  Scope values;
  bool has_values = false;
  std::vector<std::string> read;  // the files that the model was read from
};

// Reads PROGRAM, and its parameters from `params`, a directory or a combined file. If `params` is
// "", reads the parameters next to the program, if there are any.
ModelFiles ReadModel(const std::string& path, const std::string& params);
// Throws kNotFound unless the model, which was read from `path`, has the values of its parameters.
void RequireValues(const ModelFiles& model, const std::string& path);

// The file in which readers look for the parameters of the program file; "" if there is none.
std::string ParametersFileOf(const std::string& program_file);

// Throws UsageError unless --out is given and names a program file, and --save_params is "" or
// names a parameter file.
void CheckModelFlags(const ModelFlags& flags);

// Writes the program to --out, and its parameters, if there are any, to --save_params, or else to
// NAME.pdiparams next to NAME.pdmodel or to __params__ next to __model__. Returns a line for each
// file, or "" if the program goes to standard output. Throws before it writes anything if values
// are requested that the model does not have, if the parameters of another program are where
// readers would look for those of this one, or if an input file would be overwritten.
std::string WriteModel(const ModelFiles& model, const ModelFlags& flags);

// The file to which WriteModel writes the parameters; "" if it writes none.
std::string WrittenParameters(const ModelFlags& flags);

// Throws UsageError if a file to be written is one of those read. The program and its parameters
// are two files: if the command stopped after overwriting only one, they would not match.
void RefuseOwnFiles(const std::vector<std::string>& read, const std::vector<std::string>& written);

// Throws if parameters of another program are next to --out, because readers would take them for
// its own.
void RefuseForeignParameters(const ModelFlags& flags);

// Makes a line such as "inputs   x float32[-1, 3], y int64[-1]" for variables of the root block.
std::string DescribeVars(const std::string& heading, const ProgramDesc& program,
                         const std::vector<std::string>& names);

}  // namespace coracle::tools
