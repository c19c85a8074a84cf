#pragma once
// Tensors as JSON: {"format": "coracle.tensors", "version": 1, "tensors": [{"name", "dtype",
// "shape", "lod" (where there are sequences), "data": the elements in row-major order}]}. nan and
// infinities are the words "nan", "inf" and "-inf"; a complex number is [real, imaginary].

#include <coracle/framework/io/tensor_io.h>

#include <string>
#include <string_view>

namespace coracle::tools {

std::string TensorJson(const NamedTensors& tensors);
// Throws kDataLoss with the position for text that TensorJson does not write.
NamedTensors ParseTensorJson(std::string_view text, const std::string& source);

}  // namespace coracle::tools
