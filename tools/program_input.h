#pragma once
// How commands find programs and parameters, and which names they accept for output files.

#include <coracle/convert/models.h>
#include <coracle/framework/io/tensor_io.h>

#include <string>
#include <vector>

namespace coracle::tools {

// Reads a .pdmodel, __model__, .pb, .pbtxt or .onnx file, the inference.json of Paddle 3, a
// directory that holds a saved model, or standard input ("-"). A model text gives its main program.
ProgramDesc ReadAnyProgram(const std::string& path);

// How ONNX models are imported: for the shapes of --shape.
OnnxImportOptions ImportOptions();

// Whether the name is that of an ONNX model, which holds both a program and its parameters.
bool IsOnnx(const std::string& path);

// Whether the file is a job text.
bool IsJob(const std::string& file);

// The file that ReadAnyProgram reads: for a directory, the program file in it.
std::string ProgramFile(const std::string& path);

// The parameters next to a saved model, as a path for ReadParameters. `program_file` is a result of
// ProgramFile. Returns "" if there are none.
std::string ParametersNextTo(const std::string& program_file);
// The same, but also "" if the program has no parameters, or if the directory of a __model__ holds
// none of them.
std::string ParametersNextTo(const std::string& program_file, const ProgramDesc& program);

// Reads parameters with LoadParameters, from an ONNX model or from a snapshot. Throws kNotFound for
// a missing one.
void ReadParameters(const ProgramDesc& program, const std::string& path, Scope& scope);

// The program next to a combined file of parameters, which holds no names; "" if there is none.
std::string ProgramNextTo(const std::string& params);

// The parameters of a program by name, read from `params` as in ReadParameters.
NamedTensors ParametersOf(const ProgramDesc& program, const std::string& params);

// Throw UsageError if `path` has an ending that the command does not write, so that no file gets a
// misleading name. `what` names the path in the message ("--out"). An empty path is accepted.
// RequireEnding also accepts "-"; an ending "" in its list allows a name without an ending.
void RequireProgramName(const std::string& what, const std::string& path);
void RequireParametersName(const std::string& what, const std::string& path);
// Whether the name has the ending of a file of parameters.
bool IsParametersName(const std::string& path);
void RequireEnding(const std::string& what, const std::string& path,
                   const std::vector<std::string>& endings);
// The same for a directory that the command creates: its name must not have the ending of a file
// that commands write, such as .npz.
void RequireDirectoryName(const std::string& what, const std::string& path);

}  // namespace coracle::tools
