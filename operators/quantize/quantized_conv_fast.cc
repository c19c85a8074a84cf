#include <coracle/operators/quantize/quantized_conv.h>

#ifdef CORACLE_ONEDNN
#include <coracle/operators/quantize/quantized_conv_onednn.h>

#include <utility>
#endif

namespace coracle::inline internal {

#ifdef CORACLE_ONEDNN

namespace {

Kernel ChannelsLast(const PrepareContext& ctx, const QuantizedConvArgs& args) {
  const auto filter = ConstantFilterOf(ctx, args);
  if (!filter) return {};
  return ctx.Choose(
      {args.input, args.residual, args.output},
      {{"depthwise",
        [=](const PrepareContext& c, bool) { return QuantizedDepthwise(c, args, *filter); }},
       {"onednn",
        [=](const PrepareContext& c, bool) { return QuantizedConvInOneDnn(c, args, *filter); }},
       {"sums",
        [=](const PrepareContext& c, bool) { return QuantizedConvBySums(c, args, *filter); }},
       {"float32",
        [=](const PrepareContext& c, bool) { return QuantizedConvInFloat(c, args, *filter); }}});
}

dnnl::memory::desc ImageDesc(const ConvGeometry& g, bool output, DType dtype, bool channels_last) {
  using Tag = dnnl::memory::format_tag;
  const auto tag = channels_last ? Tag::nhwc : Tag::nchw;
  if (output) return {{g.batch, g.out_channels, g.h.out, g.w.out}, ByteTypeOf(dtype), tag};
  return {{g.batch, g.in_channels, g.h.in, g.w.in}, ByteTypeOf(dtype), tag};
}

// Images in the layout of the kernel, in scratch memory.
struct Transposed {
  TensorArg plain, made;
  onednn::Reorder reorder;  // to the kernel's layout, or for outputs back

  Transposed() = default;
  Transposed(const PrepareContext& ctx, const QuantizedConvArgs& a, const TensorArg& arg,
             bool output, bool back)
      : plain(arg) {
    if (!arg) return;
    made = ctx.Scratch(arg.dtype, {arg.numel});
    auto from = ImageDesc(a.g, output, arg.dtype, false),
         to = ImageDesc(a.g, output, arg.dtype, true);
    if (back) std::swap(from, to);
    reorder = onednn::Reorder(from, to);
  }
  void Before(Workspace& ws) const {
    if (plain) reorder.Run(ws.Data<const void>(plain), ws.Data<void>(made));
  }
  void After(Workspace& ws) const { reorder.Run(ws.Data<const void>(made), ws.Data<void>(plain)); }
};

Kernel ChannelsFirst(const PrepareContext& ctx, const QuantizedConvArgs& args) {
  if (!ConstantFilterOf(ctx, args)) return {};
  const Transposed input(ctx, args, args.input, false, false);
  const Transposed residual(ctx, args, args.residual, true, false);
  const Transposed output(ctx, args, args.output, true, true);
  QuantizedConvArgs inner = args;
  inner.input = input.made;
  inner.residual = residual.made;
  inner.output = output.made;
  inner.g.channels_last = true;
  const Kernel kernel = ChannelsLast(ctx, inner);
  if (!kernel) return {};
  return [=](Workspace& ws) {
    input.Before(ws);
    residual.Before(ws);
    kernel(ws);
    output.After(ws);
  };
}

}  // namespace

Kernel QuantizedConvFast(const PrepareContext& ctx) {
  const QuantizedConvArgs args(ctx);
  if (args.g.IsEmpty()) return {};
  return args.g.channels_last ? ChannelsLast(ctx, args) : ChannelsFirst(ctx, args);
}

#else

Kernel QuantizedConvFast(const PrepareContext&) { return {}; }

#endif

}  // namespace coracle::inline internal
