#pragma once
// Products with a constant matrix in the layout that suits them.

#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/gemm.h>

#include <functional>

namespace coracle {

// C = A B, finished by adding the bias (none: nullptr) and the activation of `finish`.
using PackedGemm = std::function<void(Workspace& ws, const float* a, const float* bias, float* c)>;

// The product of `spec`, not transposed and with alpha = 1 and beta = 0, with the constant in
// `slot` (see PrepareContext::Packed) for B, which is stored once for all kernels in oneDNN's
// layout, or, where it has none, as window_products.h reads it. Empty where the variable is no
// constant, and where neither is better than its own layout.
PackedGemm MakePackedGemm(const PrepareContext& ctx, const char* slot, const GemmSpec& spec,
                          const GemmFinish& finish, bool with_bias);

}  // namespace coracle
