#pragma once
// Convolution of images and of volumes: geometry, and the fast kernels of conv2d, depthwise_conv2d
// and conv3d.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/conv/conv_activation.h>
#include <coracle/operators/kernels/window.h>

namespace coracle::inline internal {

// Element strides of a tensor of images or volumes.
struct ImageStrides {
  int64_t n = 0, c = 0, d = 0, h = 0, w = 0;
};
ImageStrides StridesOf(int64_t channels, int64_t depth, int64_t height, int64_t width,
                       bool channels_last);

// The windows along each axis; for images, d has one position.
struct WindowAxes {
  int axes = 2;
  WindowAxis d{.in = 1, .kernel = 1, .out = 1};
  WindowAxis h, w;

  // Axis i of {h, w} or {d, h, w}.
  WindowAxis& axis(int i) { return i == axes - 1 ? w : i == axes - 2 ? h : d; }
  const WindowAxis& axis(int i) const { return i == axes - 1 ? w : i == axes - 2 ? h : d; }
  int64_t InPixels() const { return d.in * h.in * w.in; }
  int64_t OutPixels() const { return d.out * h.out * w.out; }
};

struct ConvGeometry : WindowAxes {
  int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  bool channels_last = false;

  ImageStrides InStrides() const { return StridesOf(in_channels, d.in, h.in, w.in, channels_last); }
  ImageStrides OutStrides() const {
    return StridesOf(out_channels, d.out, h.out, w.out, channels_last);
  }
  int64_t InputNumel() const { return batch * in_channels * InPixels(); }
  int64_t OutputNumel() const { return batch * out_channels * OutPixels(); }
  int64_t FilterNumel() const {
    return out_channels * (in_channels / groups) * d.kernel * h.kernel * w.kernel;
  }
  bool IsEmpty() const { return InputNumel() == 0 || OutputNumel() == 0 || FilterNumel() == 0; }
};

// Whether the axis has one position, without padding, so that nothing moves along it.
inline bool IsPoint(const WindowAxis& axis) {
  return axis.in == 1 && axis.out == 1 && axis.kernel == 1 && axis.before == 0 && axis.after == 0;
}

// Exchanges height and width of images that are one pixel wide, as signals and texts may be. The
// memory of images and filter stays the same, and kernels, which are fast along the width, compute
// such images as fast as those that are one pixel high.
void LayFlat(WindowAxes& axes);

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

// The geometry of a prepared op, from the attrs of ConvWindow, groups and data_format; filter is
// [M, C / groups, kernel].
ConvGeometry ConvGeometryOf(const PrepareContext& ctx, const TensorArg& input,
                            const TensorArg& filter);

// Arguments of the two kernels; an empty one is absent or unwanted. The residual has the output's
// shape and may share its memory.
struct ConvForwardArgs {
  TensorArg input, filter, bias, residual, output;
  ConvActivation activation = {};
};
struct ConvBackwardArgs {
  TensorArg input, filter, dout, dinput, dfilter, dbias;
};

// float32 and bfloat16 kernels; an empty Kernel if the case is not supported.
Kernel ConvForwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                       const ConvForwardArgs& args);
Kernel ConvBackwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                        const ConvBackwardArgs& args);

// bias_grad[c] = sum of dout over all dims except channels, in a fixed order.
template <class T>
void ConvBiasGrad(const ConvGeometry& g, const T* dout, T* dbias);

extern template void ConvBiasGrad<float>(const ConvGeometry&, const float*, float*);
extern template void ConvBiasGrad<double>(const ConvGeometry&, const double*, double*);

}  // namespace coracle::inline internal
