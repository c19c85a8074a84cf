#pragma once
// Products of 8-bit matrices: the arguments of the op, and its fast kernel.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/conv/conv_activation.h>
#include <coracle/operators/kernels/arithmetic.h>
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

// Scales or zero points: none, one, or one for each row or column.
struct RowParameters {
  const TensorArg& arg;
  const void* data;

  RowParameters(const Workspace& ws, const TensorArg& of)
      : arg(of), data(of ? ws.Data<const void>(of) : nullptr) {}
  // `at`: the row in its matrix, or the column; `all`: counted through all matrices.
  int64_t Index(int64_t at, int64_t all) const {
    return arg.numel == 1 ? 0 : arg.shape.rank() == 1 ? at : all;
  }
  int64_t Zero(int64_t at, int64_t all) const {
    return arg ? IntegerAt(arg.dtype, data, Index(at, all)) : 0;
  }
  double Scale(int64_t at, int64_t all) const {
    return arg ? static_cast<double>(static_cast<const float*>(data)[Index(at, all)]) : 1;
  }
};

// Makes an element of Out from its sum of products, exactly: the meaning of the op.
class SumFinish {
 public:
  SumFinish(const QuantizedProduct& p, const Workspace& ws)
      : p_(p),
        ws_(ws),
        store_(ws, p.out, p.out_q),
        residual_scale_(static_cast<double>(p.residual_q.Scale(ws))),
        residual_zero_(p.residual_q.Zero(ws)) {}

  // `scale`: XScale YScale; `at`: the index in Out.
  void operator()(int64_t sum, double scale, int64_t column, int64_t at) const {
    double added = 0;
    if (p_.bias && p_.bias.dtype == DType::kInt32)
      sum += ws_.Data<const int32_t>(p_.bias)[column];
    else if (p_.bias)
      added = static_cast<double>(ws_.Data<const float>(p_.bias)[column]);
    if (p_.out.dtype == DType::kInt32) {
      ws_.Data<int32_t>(p_.out)[at] = SaturateTo<int32_t>(static_cast<double>(sum));
      return;
    }
    double value = scale * static_cast<double>(sum) + added;
    if (p_.residual) value += Residual(at);
    p_.activation.Apply(&value, 1);
    store_(at, value);
  }

 private:
  double Residual(int64_t at) const {
    const void* data = ws_.Data<const void>(p_.residual);
    if (p_.residual.dtype == DType::kFloat32)
      return static_cast<double>(static_cast<const float*>(data)[at]);
    return residual_scale_ * (IntegerAt(p_.residual.dtype, data, at) - residual_zero_);
  }

  const QuantizedProduct& p_;
  const Workspace& ws_;
  RealStore store_;
  double residual_scale_;
  int32_t residual_zero_;
};

// An empty Kernel if the case is not supported.
Kernel QuantizedMatmulFast(const PrepareContext& ctx);

}  // namespace coracle::inline internal
