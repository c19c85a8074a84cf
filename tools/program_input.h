#pragma once
// How every command finds a program, and which names it gives to what it writes.

#include <coracle/framework/io/tensor_io.h>

#include <string>
#include <vector>

namespace coracle::tools {

// A .pdmodel, __model__, .pb, .pbtxt or .onnx file, a directory that holds a saved model, or "-"
// for standard input. Of a model text it is the main program.
ProgramDesc ReadAnyProgram(const std::string& path);

// Whether the name is that of an ONNX model, which is both a program and its parameters.
bool IsOnnx(const std::string& path);

// Whether the file is the text of a job.
bool IsJob(const std::string& file);

// The file that ReadAnyProgram reads: in a directory the program in it.
std::string ProgramFile(const std::string& path);

// Where the parameters beside a saved model are, as ReadParameters takes it: of the file that
// ProgramFile returns. "" when there are none.
std::string ParametersBeside(const std::string& program_file);
// The same for that program: "" too where it has no parameters, and where the directory of a
// __model__ holds none of them.
std::string ParametersBeside(const std::string& program_file, const ProgramDesc& program);

// LoadParameters, or those of an ONNX model; throws kNotFound for one that it lacks.
void ReadParameters(const ProgramDesc& program, const std::string& path, Scope& scope);

// The program beside a combined file of parameters, which holds no names; "" when there is none.
std::string ProgramBeside(const std::string& params);

// The parameters of a program by their names, from `params` as ReadParameters takes it.
NamedTensors ParametersOf(const ProgramDesc& program, const std::string& params);

// Throw UsageError unless `path`, which `what` names ("--out"), is "" or one that the command
// writes, so that no file gets an ending that means something else. Of RequireEnding "-" is one
// too, and "" in the list stands for a name without ending.
void RequireProgramName(const std::string& what, const std::string& path);
void RequireParametersName(const std::string& what, const std::string& path);
void RequireEnding(const std::string& what, const std::string& path,
                   const std::vector<std::string>& endings);
// The same for a directory that the command makes: its name must not end as a file's that commands
// write, such as .npz.
void RequireDirectoryName(const std::string& what, const std::string& path);

}  // namespace coracle::tools
