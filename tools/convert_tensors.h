#pragma once
// The part of `coracle convert` for files of tensors and of parameters.

#include <string>

namespace coracle::tools {

// Whether the name has the ending of a tensor file: npz, npy, safetensors, csv, json or .pdiparams.
bool IsTensorFileName(const std::string& path);

// Rewrites the tensors of `in` in the format given by the ending of `out`. `in` is such a file, or
// a model, whose parameters are written. A .pdiparams file has no names: for reading, the names
// come from the program next to it; for writing, the order is that of the program next to it, or
// else the order of the names.
void ConvertTensors(const std::string& in, const std::string& out, const std::string& params);

// Whether the path is a directory of parameters in files of their own, without a program.
bool IsParameterDirectory(const std::string& path);
// Joins the files of such a directory, or the parameters of a model (see ReadModel), to one file.
// Prints how many. Throws kNotFound for a model without parameters.
void JoinParameterFiles(const std::string& in, const std::string& params, const std::string& out);
// Writes each parameter of a model to a file of its own in the new directory `out`, in Paddle's
// format. Throws kAlreadyExists for a directory that is not empty.
void SplitParameters(const std::string& in, const std::string& params, const std::string& out);

}  // namespace coracle::tools
