#pragma once
// A check for gradient ops that need only the shape of their forward op's result.

#include <coracle/framework/op/op_context.h>

namespace coracle::inline internal {

// Requires Out@GRAD to have the type `out` of the forward op's Out. In an exact context, a
// dimension of -1 comes from a malformed input and matches nothing.
inline void RequireOutGrad(InferContext& ctx, std::string_view id, const VarMeta& out) {
  const VarMeta& dout = ctx.Input("Out@GRAD");
  const bool fits = ctx.exact() ? dout.shape == out.shape : dout.shape.CompatibleWith(out.shape);
  if (dout.dtype == out.dtype && fits) return;
  ctx.Fail(id, dout, out);
}

// The shape rule of such an op if X has its only gradient.
inline void InferXGrad(InferContext& ctx, std::string_view id, const VarMeta& out) {
  RequireOutGrad(ctx, id, out);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

}  // namespace coracle::inline internal
