#pragma once
// A check of gradient ops that need their forward op's result for its shape alone.

#include <coracle/framework/op/infer_context.h>

namespace coracle {

// Requires Out@GRAD to be what the forward op's Out is. In an exact context a dimension of -1 came
// from a malformed input and fits nothing.
inline void RequireOutGrad(InferContext& ctx, std::string_view id, const VarMeta& out) {
  const VarMeta& dout = ctx.Input("Out@GRAD");
  const bool fits = ctx.exact() ? dout.shape == out.shape : dout.shape.CompatibleWith(out.shape);
  if (dout.dtype == out.dtype && fits) return;
  ctx.Fail(id, dout, out);
}

// The shape rule of such an op whose only gradient is that of X.
inline void InferXGrad(InferContext& ctx, std::string_view id, const VarMeta& out) {
  RequireOutGrad(ctx, id, out);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

}  // namespace coracle
