#pragma once
// Shapes of different rank, aligned at their last dims.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>

namespace coracle::inline internal {

// Dim i of a shape that is aligned with the last dims of a shape of rank `rank`; 1 before its
// own dims.
inline int64_t AlignedDim(const Shape& shape, int i, int rank) {
  const int at = i - (rank - shape.rank());
  return at < 0 ? 1 : shape[at];
}

}  // namespace coracle::inline internal
