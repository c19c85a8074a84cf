#pragma once
// The kernels of quantized_conv2d.

#include <coracle/operators/conv/conv.h>

#include <cstdint>

namespace coracle::inline internal {

// The variables of the op; an absent one converts to false.
struct QuantizedConvArgs {
  TensorArg input, input_scale, input_zero;
  TensorArg filter, filter_scale, filter_zero;
  TensorArg bias, residual, residual_scale, residual_zero;
  TensorArg out_scale, out_zero, output;
  ConvActivation activation;
  ConvGeometry g;

  explicit QuantizedConvArgs(const PrepareContext& ctx);

  bool raw_sums() const { return output.dtype == DType::kInt32; }
};

// An empty Kernel if the reference loop has to run.
Kernel QuantizedConvFast(const PrepareContext& ctx);

}  // namespace coracle::inline internal
