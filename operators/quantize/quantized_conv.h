#pragma once
// The kernels of quantized_conv2d.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv.h>

#include <cstdint>
#include <optional>
#include <vector>

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

// The scales and zero points of an op, if they are constant and the scales finite.
struct ConvConstants {
  std::vector<float> input_scale, filter_scale, residual_scale, out_scale;  // empty if absent
  int32_t input_zero = 0, residual_zero = 0, out_zero = 0;

  // InputScale FilterScale[m]
  double RealScale(int64_t m) const {
    const auto at = filter_scale.size() == 1 ? 0 : static_cast<size_t>(m);
    return static_cast<double>(input_scale[0]) * static_cast<double>(filter_scale[at]);
  }
};
std::optional<ConvConstants> ReadConvConstants(const PrepareContext& ctx);

// Calls f(part, thread) for `count` parts. A thread computes several parts one after the other, so
// that it needs the memory of one.
template <class F>
void ForParts(int64_t count, int64_t threads, F&& f) {
  ParallelFor(threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = count * t / threads; i < count * (t + 1) / threads; ++i) f(i, t);
    }
  });
}

// An empty Kernel if the reference loop has to run.
Kernel QuantizedConvFast(const PrepareContext& ctx);

}  // namespace coracle::inline internal
