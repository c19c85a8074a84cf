#pragma once
// Files of tensors that commands read and write: npz, npy, safetensors, csv and json.
// docs/command_line.md describes the last two.

#include <coracle/framework/io/tensor_archive.h>

#include <string>
#include <vector>

namespace coracle::tools {

// npz, npy and safetensors files are known by their contents, csv and json files by their endings;
// "-" is standard input. The array of an npy file has the name "". Tensors of a csv file, which
// says nothing of dtypes, are int64 where all numbers are whole, else float64.
NamedTensors ReadTensorFile(const std::string& path);
const std::vector<std::string>& TensorEndings();  // ".npz", ...
bool IsCsvName(const std::string& path);

// Throws UsageError unless WriteTensorFile knows the ending; `what` names the path ("--out").
void RequireTensorEnding(const std::string& what, const std::string& path);
// Throws UsageError if a file of that ending cannot hold so many tensors: an npy file holds one.
void RequireTensorCount(const std::string& what, const std::string& path, size_t tensors);

// In the format of the ending; npz for "-", standard output. Each name once. Throws
// kInvalidArgument for what the format cannot hold: sequences and more than one tensor in npy;
// sequences, complex numbers, and tensors with different numbers of rows in csv.
void WriteTensorFile(const NamedTensors& tensors, const std::string& path);

}  // namespace coracle::tools
