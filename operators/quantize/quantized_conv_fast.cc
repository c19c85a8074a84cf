#include <coracle/operators/quantize/quantized.h>
#include <coracle/operators/quantize/quantized_conv.h>
#include <coracle/operators/quantize/quantized_fast.h>

#include <algorithm>
#include <cmath>
#include <vector>

#ifdef CORACLE_ONEDNN
#include <coracle/operators/quantize/quantized_conv_onednn.h>

#include <utility>
#endif

namespace coracle::inline internal {

QuantizedConvArgs::QuantizedConvArgs(const PrepareContext& ctx)
    : input(ctx.Input("Input")),
      input_scale(ctx.Input("InputScale")),
      input_zero(ctx.Input("InputZeroPoint")),
      filter(ctx.Input("Filter")),
      filter_scale(ctx.Input("FilterScale")),
      filter_zero(ctx.Input("FilterZeroPoint")),
      bias(ctx.Input("Bias")),
      residual(ctx.Input("Residual")),
      residual_scale(ctx.Input("ResidualScale")),
      residual_zero(ctx.Input("ResidualZeroPoint")),
      out_scale(ctx.Input("OutScale")),
      out_zero(ctx.Input("OutZeroPoint")),
      output(ctx.Output("Output")),
      activation(ctx),
      g(ConvGeometryOf(ctx, input, filter)) {}

namespace {

bool ReadScales(const PrepareContext& ctx, const char* slot, std::vector<float>* to) {
  const auto scales = ConstantScales(ctx, slot);
  if (!scales) return false;
  *to = *scales;
  return std::all_of(to->begin(), to->end(), [](float s) { return std::isfinite(s); });
}
bool ReadZero(const PrepareContext& ctx, const char* slot, int32_t* to) {
  const auto zeros = ConstantZeroPoints(ctx, slot);
  if (!zeros) return false;
  *to = zeros->empty() ? 0 : zeros->front();
  return true;
}

}  // namespace

std::optional<ConvConstants> ReadConvConstants(const PrepareContext& ctx) {
  ConvConstants c;
  const bool all = ReadScales(ctx, "InputScale", &c.input_scale) &&
                   ReadScales(ctx, "FilterScale", &c.filter_scale) &&
                   ReadScales(ctx, "ResidualScale", &c.residual_scale) &&
                   ReadScales(ctx, "OutScale", &c.out_scale) &&
                   ReadZero(ctx, "InputZeroPoint", &c.input_zero) &&
                   ReadZero(ctx, "ResidualZeroPoint", &c.residual_zero) &&
                   ReadZero(ctx, "OutZeroPoint", &c.out_zero);
  return all ? std::optional(c) : std::nullopt;
}

#ifdef CORACLE_ONEDNN

namespace {

// Whether float32 holds the factors of all channels. If they are known only in a run, the kernels
// look at them in each run.
bool HasTameScales(const PrepareContext& ctx, const QuantizedConvArgs& args) {
  const auto c = ReadConvConstants(ctx);
  if (!c || c->input_scale.empty()) return true;
  const double out = c->out_scale.empty() ? 1 : static_cast<double>(c->out_scale[0]);
  bool tame = IsTame(out);
  for (int64_t m = 0; m < args.g.out_channels; ++m)
    tame = tame && IsTame(c->RealScale(m)) && IsTame(c->RealScale(m) / out);
  if (c->residual_scale.empty()) return tame;
  const auto residual = static_cast<double>(c->residual_scale[0]);
  return tame && IsTame(residual) && IsTame(residual / out);
}

Kernel ChannelsLast(const PrepareContext& ctx, const QuantizedConvArgs& args) {
  if (!HasTameScales(ctx, args)) return {};
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
