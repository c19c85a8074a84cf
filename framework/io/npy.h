#pragma once
// NumPy's .npy (format 1.0 to 3.0) and .npz files: all dtypes of Tensor (bfloat16 is written as
// float32), C and Fortran order, stored and deflated archives. Format: numpy/lib/format.py's
// description; ZIP: PKWARE's APPNOTE.

#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// The tensor that an .npy file's bytes describe; `source` names them in errors. Throws Error:
// kDataLoss for damaged or truncated bytes, kUnimplemented for element types that are no plain
// numbers, kOutOfRange for a uint64 beyond int64 (unsigned types widen to the next signed one).
Tensor ParseNpy(std::string_view bytes, const std::string& source);
std::string SerializeNpy(const Tensor& tensor);
Tensor ReadNpy(const std::string& path);
void WriteNpy(const Tensor& tensor, const std::string& path);

// The tensors of an .npz archive's bytes, in the archive's order, names without ".npy". Throws as
// ParseNpy does, kDataLoss for a damaged archive too.
NamedTensors ParseNpz(std::string_view bytes, const std::string& source);
NamedTensors ReadNpz(const std::string& path);
void WriteNpz(const NamedTensors& tensors, const std::string& path, bool compressed = false);

}  // namespace coracle
