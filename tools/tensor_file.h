#pragma once
// Reads and writes the tensor files of commands: npz, npy, safetensors, csv and json.
// docs/command_line.md describes csv and json.

#include <coracle/framework/io/tensor_io.h>

#include <set>
#include <string>
#include <vector>

namespace coracle::tools {

// Recognizes npz, npy and safetensors files by their contents, csv and json files by their endings;
// "-" is standard input. The array of an npy file has the name "". A csv file does not store
// dtypes: a tensor named in `texts` is strings, another one int64 if all its numbers are integers,
// else float64.
NamedTensors ReadTensorFile(const std::string& path, const std::set<std::string>& texts = {});
const std::vector<std::string>& TensorEndings();  // ".npz", ...
bool IsCsvName(const std::string& path);

// Throws UsageError if WriteTensorFile does not know the ending. `what` names the path ("--out").
void RequireTensorEnding(const std::string& what, const std::string& path);
// Throws UsageError if a file with that ending cannot hold `tensors` tensors: npy holds one.
void RequireTensorCount(const std::string& what, const std::string& path, size_t tensors);

// Writes the format given by the ending, or npz to standard output for "-". Names must be unique.
// Throws kInvalidArgument for contents that the format cannot hold: npy holds only one tensor and
// no sequences; csv holds no sequences and no complex numbers, and its tensors must have the same
// number of rows.
void WriteTensorFile(const NamedTensors& tensors, const std::string& path);

}  // namespace coracle::tools
