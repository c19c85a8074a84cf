#pragma once
// Two-dimensional convolution: geometry, and the fast kernels of conv2d and depthwise_conv2d.

#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/window.h>

namespace coracle {

// Element strides of an image tensor.
struct ImageStrides {
  int64_t n = 0, c = 0, h = 0, w = 0;
};
ImageStrides StridesOf(int64_t channels, int64_t height, int64_t width, bool channels_last);

struct ConvGeometry {
  int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  WindowAxis h, w;
  bool channels_last = false;

  ImageStrides InStrides() const { return StridesOf(in_channels, h.in, w.in, channels_last); }
  ImageStrides OutStrides() const { return StridesOf(out_channels, h.out, w.out, channels_last); }
  int64_t InputNumel() const { return batch * in_channels * h.in * w.in; }
  int64_t OutputNumel() const { return batch * out_channels * h.out * w.out; }
  int64_t FilterNumel() const {
    return out_channels * (in_channels / groups) * h.kernel * w.kernel;
  }
};

// The window attrs of a convolution; Context is an InferContext, PrepareContext, ...
template <class Context>
WindowSpec ConvWindow(const Context& ctx) {
  WindowSpec spec;
  spec.strides = ctx.template Attr<std::vector<int32_t>>("strides");
  spec.paddings = ctx.template Attr<std::vector<int32_t>>("paddings");
  spec.dilations = ctx.template Attr<std::vector<int32_t>>("dilations");
  spec.padding_algorithm = ctx.template Attr<std::string>("padding_algorithm");
  return spec;
}

// Of a prepared op: attrs as ConvWindow, groups, data_format; filter [M, C / groups, kh, kw].
ConvGeometry ConvGeometryOf(const PrepareContext& ctx, const TensorArg& input,
                            const TensorArg& filter);

// Arguments of the two kernels; those that convert to false are absent or unwanted.
struct ConvForwardArgs {
  TensorArg input, filter, bias, residual, output;
};
struct ConvBackwardArgs {
  TensorArg input, filter, dout, dinput, dfilter, dbias;
};

// float32 and bfloat16 kernels; an empty Kernel when there is none for this case.
Kernel ConvForwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                       const ConvForwardArgs& args);
Kernel ConvBackwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                        const ConvBackwardArgs& args);

// bias_grad[c] = sum of dout over all but channels, in a fixed order.
template <class T>
void ConvBiasGrad(const ConvGeometry& g, const T* dout, T* dbias);

extern template void ConvBiasGrad<float>(const ConvGeometry&, const float*, float*);
extern template void ConvBiasGrad<double>(const ConvGeometry&, const double*, double*);

}  // namespace coracle
