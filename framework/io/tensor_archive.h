#pragma once
// Files of tensors by name: safetensors, and what it has in common with npz (tensor_io.h).

#include <coracle/framework/io/tensor_io.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// safetensors files. Format: the safetensors project's description (a length of 8 bytes, a header
// of JSON with dtype, shape and place of each tensor, the elements).

// The tensors in the order of their elements in the file; __metadata__ is not read. U16, U32 and
// U64 widen as those of npy files do. LoD is kept as in npz files. Throws Error: kDataLoss for
// damaged or truncated bytes and for elements that overlap or leave holes, kUnimplemented for
// element types that no dtype holds (floats of 8 bits and less), kOutOfRange for a U64 beyond
// int64, and what ParseNpz throws for LoD. Every number is checked before memory is taken.
NamedTensors ParseSafetensors(std::string_view bytes, const std::string& source);
// The same of a file; the elements go straight to the tensors.
NamedTensors ReadSafetensors(const std::string& path);

// Atomic; standard output for "-". The elements are ordered by the size of their type, so that each
// is aligned. Throws kInvalidArgument for a name that is there twice, is no UTF-8 or is
// "__metadata__", and for complex128, which the format does not have.
void WriteSafetensors(const NamedTensors& tensors, const std::string& path);

// Whether the bytes begin as such a file does.
bool LooksLikeSafetensors(std::string_view bytes);

// Either format. Whether the name ends in .safetensors or .npz:
bool IsTensorArchive(const std::string& path);
// npz if the name ends so, else safetensors; when written the other way round, as "-" is npz.
NamedTensors ReadTensorArchive(const std::string& path);
void WriteTensorArchive(const NamedTensors& tensors, const std::string& path);

// Writes the variables `names` as an archive where the file's name is that of one, and else as
// SaveCombined does. LoadParameters (tensor_io.h) reads both; an archive may have more in it.
void SaveParameters(const Scope& scope, const std::vector<std::string>& names,
                    const std::string& path);

}  // namespace coracle
