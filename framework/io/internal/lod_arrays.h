#pragma once
// LoD in npz files: the offsets of level k of x are an array of integers called "x@LOD@k".

#include <coracle/framework/io/tensor_io.h>

#include <string>

namespace coracle {

// The tensors of an npz file, with the levels taken into their LoD. Throws kInvalidArgument for
// levels that are no offsets of their tensor, or without one; `source` names the file.
NamedTensors TakeLodArrays(NamedTensors arrays, const std::string& source);
// The inverse: each tensor with LoD is followed by the arrays of its levels (int64).
NamedTensors WithLodArrays(const NamedTensors& tensors);

}  // namespace coracle
