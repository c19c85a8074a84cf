#pragma once
// The part of `coracle convert` that is about files of tensors and of parameters.

#include <string>

namespace coracle::tools {

// Whether the file is one of tensors by its name: npz, npy, safetensors, csv, json or .pdiparams.
bool IsTensorFileName(const std::string& path);

// Rewrites the tensors of `in` in the format of `out`'s ending. `in` is such a file, or a model, of
// which the parameters are written; those of a .pdiparams file have the names that the program
// beside it says. A .pdiparams file gets them in the order of the program beside it, or of their
// names.
void ConvertTensors(const std::string& in, const std::string& out, const std::string& params);

}  // namespace coracle::tools
