#pragma once
// Reads a tensor from an open file. Private to framework/io.

#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>

namespace coracle::inline internal {

// Like ParseTensor, but the elements go from the file into the tensor without another copy.
Tensor ReadTensor(FileReader& file, const std::string& source);

}  // namespace coracle::inline internal
