#pragma once
// LoD in npz files: an integer array "x@LOD@k" holds the offsets of level k of x.

#include <coracle/framework/io/tensor_io.h>

#include <string>

namespace coracle::inline internal {

// Moves the level arrays of an npz file into the LoD of their tensors. Throws kInvalidArgument for
// a level whose offsets are not valid for its tensor, or whose tensor is missing; `source` names
// the file.
NamedTensors TakeLodArrays(NamedTensors arrays, const std::string& source);
// The inverse: puts the arrays of its levels (int64) after each tensor with LoD.
NamedTensors WithLodArrays(const NamedTensors& tensors);

}  // namespace coracle::inline internal
