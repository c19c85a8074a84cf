#pragma once
// Tensors read from a file as it comes. Private to framework/io.

#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>

namespace coracle {

// As ParseTensor, but the elements go from the file to the tensor without another copy.
Tensor ReadTensor(FileReader& file, const std::string& source);

}  // namespace coracle
