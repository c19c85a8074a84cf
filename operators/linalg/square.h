#pragma once
// Ops that map square matrices to square matrices of the same size.

#include <coracle/framework/op/op_context.h>

namespace coracle::inline internal {

// The shape rule: `out` has the type of `in`. C1: the last two dims of `in` form square matrices.
inline void InferSquare(InferContext& ctx, const char* in, const char* out) {
  const Shape& x = ctx.InputShape(in);
  const int rank = x.rank();
  ctx.Require("C1", rank >= 2, x);
  ctx.Require("C1", InferContext::Matches(x[rank - 2], x[rank - 1]), x);
  ctx.SetOutput(out, ctx.Input(in));
}

}  // namespace coracle::inline internal
