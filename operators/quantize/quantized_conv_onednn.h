#pragma once
// What the two kernels of quantized_conv2d on oneDNN share. Include only from .cc files under
// `#ifdef CORACLE_ONEDNN`.

#include <coracle/operators/conv/conv_calls.h>
#include <coracle/operators/quantize/quantized_conv.h>
#include <coracle/operators/quantize/signed_filter.h>

#include <memory>
#include <optional>
#include <vector>

namespace coracle::inline internal {

// The constant filter of an op.
struct ConvFilter {
  std::vector<int32_t> zeros;  // of the variable
  SignedRows rows;
  // Whether one more output channel, with the filter 1, sums up each window: its sum times
  // rows.rest is missing in the sums of the other channels.
  bool with_ones;
};
// nullopt if the filter is not constant, or is too large for sums of 32 bits.
std::optional<ConvFilter> ConstantFilterOf(const PrepareContext& ctx,
                                           const QuantizedConvArgs& args);

dnnl::memory::data_type ByteTypeOf(DType dtype);

// The primitive for a part: 8-bit channels-last images, float32 bias. Throws dnnl::error if oneDNN
// has none but its reference loop.
dnnl::convolution_forward::primitive_desc ByteConvolution(const ConvGeometry& g, DType src,
                                                          DType dst, bool bias,
                                                          const dnnl::primitive_attr& attr);

// The filter in the layout of the primitive. REQUIRES: Filter is constant.
std::shared_ptr<const Tensor> PackFilter(const PrepareContext& ctx, const ConvFilter& filter,
                                         const ConvGeometry& g, const dnnl::memory::desc& wanted);

// Whether some window along an axis lies entirely in the padding. oneDNN 2.6 finishes these outputs
// by a separate kernel, which crashes if an activation follows a residual.
bool HasEmptyWindow(const ConvGeometry& g);

// The number of threads worth using.
int64_t BytePartsWanted(const ConvGeometry& g);

// oneDNN computes all of it: sums, zero points, scales, residual, activation and rounding.
Kernel QuantizedConvInOneDnn(const PrepareContext& ctx, const QuantizedConvArgs& args,
                             const ConvFilter& filter);
// oneDNN computes the sums only, of parts that stay in the cache for the loops after it.
Kernel QuantizedConvBySums(const PrepareContext& ctx, const QuantizedConvArgs& args,
                           const ConvFilter& filter);

// A convolution of float32, for machines without exact products of 8-bit integers.
Kernel QuantizedConvInFloat(const PrepareContext& ctx, const QuantizedConvArgs& args,
                            const ConvFilter& filter);
// Depthwise convolutions with 8-bit outputs, constant numbers and no residual.
Kernel QuantizedDepthwise(const PrepareContext& ctx, const QuantizedConvArgs& args,
                          const ConvFilter& filter);

}  // namespace coracle::inline internal
