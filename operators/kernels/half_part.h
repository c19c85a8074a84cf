#pragma once
// Some elements of a tensor of 16 bits, in float32 while a kernel computes with them.

#include <coracle/framework/op/op_spec.h>
#include <coracle/framework/tensor/half_array.h>

namespace coracle {

// Elements [at, at + n) of `half` to the beginning of the float32 tensor `to`; returns that.
inline float* WidenPart(Workspace& ws, const TensorArg& half, int64_t at, int64_t n,
                        const TensorArg& to) {
  HalfToFloat(half.dtype, ws.Data<const uint16_t>(half) + at, ws.Data<float>(to), n);
  return ws.Data<float>(to);
}

// The first n elements of the float32 tensor `from` to elements [at, at + n) of `half`.
inline void NarrowPart(Workspace& ws, const TensorArg& from, const TensorArg& half, int64_t at,
                       int64_t n) {
  FloatToHalf(ws.Data<const float>(from), half.dtype, ws.Data<uint16_t>(half) + at, n);
}

}  // namespace coracle
