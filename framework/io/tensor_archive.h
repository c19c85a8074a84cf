#pragma once
// Files of named tensors: safetensors, and functions that accept either safetensors or
// npz (tensor_io.h).

#include <coracle/framework/io/tensor_io.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// safetensors files. Format: the safetensors project's description (a length of 8 bytes, a header
// of JSON with dtype, shape and place of each tensor, the elements).

// Returns the tensors in the order of their elements in the file and ignores __metadata__. U16, U32
// and U64 widen as in npy files. LoD is kept as in npz files. Throws Error: kDataLoss for damaged
// or truncated bytes and for elements that overlap or leave gaps, kUnimplemented for element types
// without a dtype (floats of 8 bits and less), kOutOfRange for a U64 beyond int64, and the errors
// of ParseNpz for LoD. Every number is checked before memory is allocated.
NamedTensors ParseSafetensors(std::string_view bytes, const std::string& source);
// Reads a file, with the elements going straight into the tensors.
NamedTensors ReadSafetensors(const std::string& path);

// Atomic; writes to standard output for "-". The elements are ordered by the size of their type, so
// that each is aligned. Throws kInvalidArgument for a name that is used twice, is not UTF-8 or is
// "__metadata__", and for complex128, which the format lacks.
void WriteSafetensors(const NamedTensors& tensors, const std::string& path);

// Whether the bytes begin like a safetensors file.
bool LooksLikeSafetensors(std::string_view bytes);

// Whether the name ends in .safetensors or .npz. The functions below accept both formats.
bool IsTensorArchive(const std::string& path);
// Reads npz if the name ends in .npz, else safetensors. Writes safetensors if the name ends in
// .safetensors, else npz (as for "-").
NamedTensors ReadTensorArchive(const std::string& path);
void WriteTensorArchive(const NamedTensors& tensors, const std::string& path);

// Writes the variables `names` as an archive if IsTensorArchive(path), else as SaveCombined does.
// LoadParameters (tensor_io.h) reads both; an archive may hold further tensors.
void SaveParameters(const Scope& scope, const std::vector<std::string>& names,
                    const std::string& path);

}  // namespace coracle
