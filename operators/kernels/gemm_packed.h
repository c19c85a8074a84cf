#pragma once
// Matrix products with a constant matrix that is stored in a packed layout.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/kernels/gemm.h>

#include <functional>

namespace coracle::inline internal {

// C = A B, then adds the bias (nullptr: none) and applies the activation of `finish`.
using PackedGemm = std::function<void(Workspace& ws, const float* a, const float* bias, float* c)>;

// The product of `spec`, not transposed and with alpha = 1 and beta = 0, whose B is the constant in
// `slot` (see PrepareContext::Packed). B is stored once for all kernels, in oneDNN's layout or, if
// oneDNN has none, in the layout of window_products.h. Empty if the variable is not constant, or if
// neither layout is faster than the plain one.
PackedGemm MakePackedGemm(const PrepareContext& ctx, const char* slot, const GemmSpec& spec,
                          const GemmFinish& finish, bool with_bias);

// The same for a constant of bfloat16: rounds the rows of A, and adds products in float32. Empty,
// too, if the machine computes them no faster than in float32 (BFloat16ProductsPay).
PackedGemm MakePackedHalfGemm(const PrepareContext& ctx, const char* slot, const GemmSpec& spec,
                              const GemmFinish& finish, bool with_bias);

}  // namespace coracle::inline internal
