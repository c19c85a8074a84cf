#pragma once
// Products of real numbers and a weight of integers: the arguments of quantized_linear, and
// integers that are packed in bytes.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/conv/conv_activation.h>
#include <coracle/operators/quantize/quantized.h>

#include <cstdint>

namespace coracle::inline internal {

// The bytes of a row of numbers with 2, 4 or 8 bits.
inline int64_t PackedBytes(int64_t numbers, int32_t bits) {
  const int64_t in_byte = 8 / bits;
  return numbers / in_byte + (numbers % in_byte != 0);
}

// A row of numbers, the first one in the lowest bits.
struct PackedRow {
  const uint8_t* bytes;
  int32_t bits;
  bool is_signed;

  int32_t At(int64_t i) const {
    const int32_t in_byte = 8 / bits, sign = 1 << (bits - 1);
    const int32_t shift = static_cast<int32_t>(i % in_byte) * bits;
    const int32_t q = bytes[i / in_byte] >> shift & ((1 << bits) - 1);
    return is_signed ? (q ^ sign) - sign : q;
  }
};

// A prepared quantized_linear. Absent tensors are empty.
struct QuantizedLayer {
  TensorArg x, weight, scale, zero, bias, out;
  ConvActivation activation;
  int64_t m = 0, n = 0, k = 0;
  int64_t block = 1, blocks = 0;  // numbers of a row that share a scale, and such blocks of a row
  int32_t bits = 8;

  explicit QuantizedLayer(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        weight(ctx.Input("Weight")),
        scale(ctx.Input("Scale")),
        zero(ctx.Input("ZeroPoint")),
        bias(ctx.Input("Bias")),
        out(ctx.Output("Out")),
        activation(ctx),
        bits(ctx.Attr<int32_t>("bits")) {
    k = x.shape[x.shape.rank() - 1];
    n = weight.shape[0];
    m = x.shape.Product(0, x.shape.rank() - 1);
    const auto size = ctx.Attr<int64_t>("block_size");
    block = size == 0 ? std::max<int64_t>(k, 1) : size;
    blocks = k / block + (k % block != 0);
  }
  bool IsSigned() const { return weight.dtype == DType::kInt8; }
  // The index of the scale or zero point of column `row` of Out, for block `b` of its weights.
  int64_t StepAt(const TensorArg& steps, int64_t row, int64_t b) const {
    return steps.numel == 1 ? 0 : steps.shape.rank() == 1 ? row : row * blocks + b;
  }
};

// An empty Kernel if the case is not supported.
Kernel QuantizedLinearFast(const PrepareContext& ctx);

}  // namespace coracle::inline internal
