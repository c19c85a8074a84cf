#pragma once
// Products of 8-bit matrices: the arguments of the op, and its fast kernel.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/conv/conv_activation.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/matmul/matrices.h>
#include <coracle/operators/quantize/quantized_slots.h>

#include <cstdint>

namespace coracle::inline internal {

// A prepared op. Absent tensors are empty.
struct QuantizedProduct {
  TensorArg x, x_scale, x_zero, y, y_scale, y_zero, bias, residual, out;
  Quantization residual_q, out_q;
  ConvActivation activation;
  int64_t m = 0, n = 0, k = 0;  // of one product
  bool transposed_x = false, transposed_y = false;
  BroadcastNest batch;  // steps in matrices

  explicit QuantizedProduct(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        x_scale(ctx.Input("XScale")),
        x_zero(ctx.Input("XZeroPoint")),
        y(ctx.Input("Y")),
        y_scale(ctx.Input("YScale")),
        y_zero(ctx.Input("YZeroPoint")),
        bias(ctx.Input("Bias")),
        residual(ctx.Input("Residual")),
        out(ctx.Output("Out")),
        residual_q(ctx, "Residual"),
        out_q(ctx, "Out"),
        activation(ctx) {
    const Matrices a = MatricesOf(x.shape, true, ctx.Attr<bool>("trans_x"));
    const Matrices b = MatricesOf(y.shape, false, ctx.Attr<bool>("trans_y"));
    m = a.rows;
    n = b.cols;
    k = a.cols;
    transposed_x = a.transposed;
    transposed_y = b.transposed;
    batch = MakeBroadcastNest(a.batch, b.batch, -1);
  }

  // The matrices of X and Y whose product is matrix `index` of Out.
  struct Pair {
    int64_t x = 0, y = 0;
  };
  Pair MatricesAt(int64_t index) const {
    Pair at;
    for (int i = batch.rank - 1; i >= 0; --i) {
      at.x += index % batch.dims[i] * batch.x_step[i];
      at.y += index % batch.dims[i] * batch.y_step[i];
      index /= batch.dims[i];
    }
    return at;
  }
};

// An empty Kernel if the case is not supported.
Kernel QuantizedMatmulFast(const PrepareContext& ctx);

}  // namespace coracle::inline internal
