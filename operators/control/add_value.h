#pragma once
// Zeros and sums of values of any kind: tensors, selected rows and tensor arrays.

#include <coracle/framework/tensor/tensor.h>

namespace coracle::inline internal {

// *value = zeros of the kind, dtype and shape of `like` (for a tensor array: its length, without
// written elements). Reuses the memory of *value.
void SetZerosLike(const VarValue& like, VarValue* value);

// *total += value, element by element; an unwritten element of a tensor array counts as zeros, and
// selected rows are appended to selected rows, or added to a tensor. Throws kInvalidArgument if
// the two differ in kind, dtype or shape.
void AddValue(const VarValue& value, VarValue* total);

}  // namespace coracle::inline internal
