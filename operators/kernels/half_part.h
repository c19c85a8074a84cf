#pragma once
// Converts parts of a 16-bit tensor to float32 while a kernel computes with them.

#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/half_array.h>

namespace coracle::inline internal {

// Converts elements [at, at + n) of `half` to the beginning of the float32 tensor `to`, and
// returns it.
inline float* WidenPart(Workspace& ws, const TensorArg& half, int64_t at, int64_t n,
                        const TensorArg& to) {
  HalfToFloat(half.dtype, ws.Data<const uint16_t>(half) + at, ws.Data<float>(to), n);
  return ws.Data<float>(to);
}

// Converts the first n elements of the float32 tensor `from` to elements [at, at + n) of `half`.
inline void NarrowPart(Workspace& ws, const TensorArg& from, const TensorArg& half, int64_t at,
                       int64_t n) {
  FloatToHalf(ws.Data<const float>(from), half.dtype, ws.Data<uint16_t>(half) + at, n);
}

}  // namespace coracle::inline internal
