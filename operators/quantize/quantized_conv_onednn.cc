#ifdef CORACLE_ONEDNN
#include <coracle/operators/quantize/quantized.h>
#include <coracle/operators/quantize/quantized_conv_onednn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

namespace coracle::inline internal {

namespace {
using dnnl::memory;
using Tag = dnnl::memory::format_tag;
}  // namespace

std::optional<ConvFilter> ConstantFilterOf(const PrepareContext& ctx,
                                           const QuantizedConvArgs& args) {
  // |(x - zx) (w - zw)| <= 255 * 255
  constexpr int64_t kMostTaps = 33000;
  const ConvGeometry& g = args.g;
  if (g.FilterNumel() / g.out_channels > kMostTaps) return std::nullopt;
  const auto zeros = ConstantZeroPoints(ctx, "FilterZeroPoint");
  const Tensor* plain = zeros ? ctx.Constant("Filter") : nullptr;
  if (!plain) return std::nullopt;
  ConvFilter filter{*zeros, SignedRows(*plain, *zeros, g.out_channels), false};
  filter.with_ones = filter.rows.has_rest();
  return filter;
}

memory::data_type ByteTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return memory::data_type::s8;
    case DType::kUInt8:
      return memory::data_type::u8;
    case DType::kInt32:
      return memory::data_type::s32;
    default:
      return memory::data_type::f32;
  }
}

namespace {

memory::dims FilterDims(const ConvGeometry& g) {
  memory::dims dims{g.out_channels / g.groups, g.in_channels / g.groups, g.h.kernel, g.w.kernel};
  if (g.groups > 1) dims.insert(dims.begin(), g.groups);
  return dims;
}

}  // namespace

dnnl::convolution_forward::primitive_desc ByteConvolution(const ConvGeometry& g, DType src,
                                                          DType dst, bool bias,
                                                          const dnnl::primitive_attr& attr) {
  using Forward = dnnl::convolution_forward;
  const memory::desc in({g.batch, g.in_channels, g.h.in, g.w.in}, ByteTypeOf(src), Tag::nhwc);
  const memory::desc out({g.batch, g.out_channels, g.h.out, g.w.out}, ByteTypeOf(dst), Tag::nhwc);
  const memory::desc filter(FilterDims(g), memory::data_type::s8, Tag::any);
  const memory::dims strides{g.h.stride, g.w.stride};
  const memory::dims dilations{g.h.dilation - 1, g.w.dilation - 1};
  const memory::dims before{g.h.before, g.w.before}, after{g.h.after, g.w.after};
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const Forward::desc desc =
      bias ? Forward::desc(kind, algorithm, in, filter, onednn::Vector(g.out_channels), out,
                           strides, dilations, before, after)
           : Forward::desc(kind, algorithm, in, filter, out, strides, dilations, before, after);
  Forward::primitive_desc made(desc, attr, onednn::Engine());
  if (IsPlainLoop(made)) throw dnnl::error(dnnl_unimplemented, "oneDNN has only a reference loop");
  return made;
}

namespace {

// In one piece: oneDNN writes sums for zero points after the filter, and would not find their
// places in a part of it.
void ReorderFilter(const memory::desc& from, const memory::desc& to, const void* given,
                   void* made) {
  const onednn::Scope inside;
  onednn::Translate("reorder", [&] {
    onednn::Call call{
        dnnl::reorder(dnnl::reorder::primitive_desc(onednn::Engine(), from, onednn::Engine(), to))};
    call.Arg(DNNL_ARG_FROM, from).Arg(DNNL_ARG_TO, to);
    call.Run({given, made});
  });
}

}  // namespace

std::shared_ptr<const Tensor> PackFilter(const PrepareContext& ctx, const ConvFilter& filter,
                                         const ConvGeometry& g, const memory::desc& wanted) {
  PackedLayout layout{"quantized_conv2d ", {}, {}};
  layout.id.append(reinterpret_cast<const char*>(&wanted.data), sizeof wanted.data);
  for (int32_t zero : filter.zeros) layout.id += " " + std::to_string(zero);
  const memory::desc plain(FilterDims(g), memory::data_type::s8,
                           g.groups > 1 ? Tag::goihw : Tag::oihw);
  const int64_t rows = static_cast<int64_t>(filter.rows.rest.size());
  layout.pack = [=, zeros = filter.zeros, with_ones = filter.with_ones](const Tensor& given) {
    const SignedRows all(given, zeros, rows);
    Tensor values(DType::kInt8, {all.values.numel() + (with_ones ? all.row : 0)});
    std::memcpy(values.raw(), all.values.raw(), static_cast<size_t>(all.values.numel()));
    if (with_ones) std::fill_n(values.data<int8_t>() + all.values.numel(), all.row, int8_t{1});
    Tensor made(DType::kInt8, {static_cast<int64_t>(wanted.get_size())});
    ReorderFilter(plain, wanted, values.raw(), made.raw());
    return made;
  };
  // Some processors store halved values, which lose a bit.
  const auto& extra = wanted.data.extra;
  if ((extra.flags & dnnl_memory_extra_flag_scale_adjust) == 0 || extra.scale_adjust == 1) {
    memory::desc values = wanted;  // without the sums that oneDNN writes after them
    values.data.extra = {};
    layout.unpack = [=, shape = ctx.Input("Filter").shape, dtype = ctx.Input("Filter").dtype,
                     zeros = filter.zeros, rest = filter.rows.rest,
                     with_ones = filter.with_ones](const Tensor& made) {
      const int64_t row = rows > 0 ? shape.numel() / rows : 0;
      Tensor all(DType::kInt8, {shape.numel() + (with_ones ? row : 0)}), given(dtype, shape);
      ReorderFilter(values, plain, made.raw(), all.raw());
      const auto* from = all.data<int8_t>();
      auto* to = static_cast<uint8_t*>(given.raw());  // both types have the same bytes
      for (int64_t i = 0; i < shape.numel(); ++i) {
        const auto m = static_cast<size_t>(i / row);
        const int32_t zero = zeros.empty() ? 0 : zeros[zeros.size() == 1 ? 0 : m];
        to[i] = static_cast<uint8_t>(from[i] + zero - rest[m]);
      }
      return given;
    };
  }
  return ctx.Packed("Filter", layout);
}

bool HasEmptyWindow(const ConvGeometry& g) {
  for (const WindowAxis* axis : {&g.h, &g.w}) {
    for (int64_t o = 0; o < axis->out; ++o) {
      const int64_t start = axis->Start(o);
      const int64_t tap = start < 0 ? (-start + axis->dilation - 1) / axis->dilation : 0;
      if (tap >= axis->kernel || start + tap * axis->dilation >= axis->in) return true;
    }
  }
  return false;
}

int64_t BytePartsWanted(const ConvGeometry& g) {
  const double products = static_cast<double>(g.OutputNumel()) *
                          static_cast<double>(g.FilterNumel()) /
                          static_cast<double>(g.out_channels);
  return static_cast<int64_t>(std::min<double>(NumThreads(), 1 + products / 1e6));
}

namespace {

bool HasPadding(const ConvGeometry& g) {
  return g.h.before > 0 || g.h.after > 0 || g.w.before > 0 || g.w.after > 0;
}

// What oneDNN does after the sums:
// out = round(act(scales[m] (sum + bias[m]) + residual) + zero), in units of `unit`.
struct Epilogue {
  std::vector<float> scales, bias;
  dnnl::primitive_attr attr;
  dnnl::post_ops ops;
  double unit = 1;
};

// Adds the activation in the epilogue's units; false if it has to run elsewhere.
bool AddActivation(const PrepareContext& ctx, const ConvActivation& activation, double out_scale,
                   Epilogue* to) {
  using dnnl::algorithm;
  const std::string_view name = activation.name();
  const auto in_units = [&](const char* attr) {
    return static_cast<float>(static_cast<double>(ctx.Attr<float>(attr)) / to->unit);
  };
  const float alpha = in_units("fuse_alpha"), beta = in_units("fuse_beta");
  const auto last = static_cast<float>(to->unit / out_scale);
  if (!std::isfinite(alpha) || !std::isfinite(beta) || !std::isfinite(last)) return false;
  if (name == "relu") {
    to->ops.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
  } else if (name == "leaky_relu") {
    to->ops.append_eltwise(1, algorithm::eltwise_relu, activation.alpha(), 0);
  } else if (name == "relu6" && alpha >= 0) {
    to->ops.append_eltwise(1, algorithm::eltwise_clip, 0, alpha);
  } else if (name == "clip" && alpha <= beta) {
    to->ops.append_eltwise(1, algorithm::eltwise_clip, alpha, beta);
  } else if (name == "hard_swish") {
    to->ops.append_eltwise(last, algorithm::eltwise_hardswish, 0, 0);
  } else if (name == "swish") {
    to->ops.append_eltwise(last, algorithm::eltwise_swish, activation.alpha(), 0);
  } else {
    return name.empty();
  }
  return true;
}

// The curves of these activations are in real units.
bool IsCurved(std::string_view activation) {
  return activation == "hard_swish" || activation == "swish";
}

// The residual has to lie in the memory of the output. If it may hold nan, oneDNN's activations
// would turn that into a number.
bool AddResidual(const QuantizedConvArgs& args, const ConvConstants& c, Epilogue* to) {
  if (!args.residual) return true;
  const bool bytes = IsByte(args.residual.dtype);
  if (!bytes && args.activation) return false;
  if (bytes != IsByte(args.output.dtype)) return false;
  const double scale = bytes ? static_cast<double>(c.residual_scale[0]) / to->unit : 1;
  const auto rounded = static_cast<float>(scale);
  if (!std::isfinite(rounded)) return false;
  to->ops.append_sum(rounded, 0, ByteTypeOf(args.residual.dtype));
  return true;
}

// Sets scales and bias, which oneDNN adds before it multiplies. `shift`: what is added to all
// channels, in real units.
bool SetScales(const PrepareContext& ctx, const QuantizedConvArgs& args, const ConvFilter& filter,
               const ConvConstants& c, int32_t folded_zero, double shift, Epilogue* to) {
  const Tensor* bias = args.bias ? ctx.Constant("Bias") : nullptr;
  if (args.bias && !bias) return false;
  const auto channels = static_cast<size_t>(args.g.out_channels);
  for (size_t m = 0; m < channels; ++m) {
    const double real = c.RealScale(static_cast<int64_t>(m));
    const auto scale = static_cast<float>(real / to->unit);
    double sum = -static_cast<double>(folded_zero) * filter.rows.sums[m] + shift / real;
    if (bias && bias->dtype() == DType::kInt32) sum += bias->data<int32_t>()[m];
    if (bias && bias->dtype() == DType::kFloat32)
      sum += static_cast<double>(bias->data<float>()[m]) / real;
    const auto rounded = static_cast<float>(sum);
    if (!std::isnormal(scale) || !std::isfinite(rounded)) return false;
    to->scales.push_back(scale);
    to->bias.push_back(rounded);
  }
  return true;
}

// Whether zero * sums can be part of a float32 bias without a loss that matters.
bool MayFold(int32_t zero, const SignedRows& filter) {
  constexpr int64_t kExact = 1 << 21;
  return std::all_of(filter.sums.begin(), filter.sums.end(),
                     [&](int64_t sum) { return std::abs(zero * sum) < kExact; });
}

// nullopt if oneDNN cannot do all of it.
std::optional<Epilogue> EpilogueOf(const PrepareContext& ctx, const QuantizedConvArgs& args,
                                   const ConvFilter& filter) {
  const auto c = ReadConvConstants(ctx);
  if (!c) return std::nullopt;
  Epilogue made;
  const bool bytes = IsByte(args.output.dtype);
  const double out_scale = bytes ? static_cast<double>(c->out_scale[0]) : 1;
  if (!(out_scale > 0)) return std::nullopt;
  made.unit = IsCurved(args.activation.name()) ? 1 : out_scale;
  const bool fold = !HasPadding(args.g) && MayFold(c->input_zero, filter.rows);
  const double shift = args.residual && IsByte(args.residual.dtype)
                           ? -static_cast<double>(c->residual_scale[0]) * c->residual_zero
                           : 0;
  if (!AddResidual(args, *c, &made) || !AddActivation(ctx, args.activation, out_scale, &made) ||
      !SetScales(ctx, args, filter, *c, fold ? c->input_zero : 0, shift, &made))
    return std::nullopt;
  made.attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  made.attr.set_output_scales(2, made.scales);
  made.attr.set_post_ops(made.ops);
  if (!fold && c->input_zero != 0) made.attr.set_zero_points(DNNL_ARG_SRC, 0, {c->input_zero});
  if (c->out_zero != 0) made.attr.set_zero_points(DNNL_ARG_DST, 0, {c->out_zero});
  return made;
}

bool HasBias(const Epilogue& epilogue) {
  return std::any_of(epilogue.bias.begin(), epilogue.bias.end(), [](float b) { return b != 0; });
}

Kernel MakeCalls(const PrepareContext& ctx, const QuantizedConvArgs& args, const ConvFilter& filter,
                 const Epilogue& epilogue, const std::vector<ConvPart>& parts) {
  const bool with_bias = HasBias(epilogue);
  PartCalls calls;
  for (const ConvPart& part : parts) {
    const auto pd =
        ByteConvolution(part.g, args.input.dtype, args.output.dtype, with_bias, epilogue.attr);
    if (args.residual && MayAddUnaligned(pd)) return {};
    onednn::Call call{dnnl::convolution_forward(pd)};
    call.Arg(DNNL_ARG_SRC, pd.src_desc()).Arg(DNNL_ARG_WEIGHTS, pd.weights_desc());
    call.Arg(DNNL_ARG_DST, pd.dst_desc());
    if (with_bias) call.Arg(DNNL_ARG_BIAS, pd.bias_desc());
    calls.Add(part, pd, pd.weights_desc(), call);
  }
  const auto packed = PackFilter(ctx, filter, args.g, calls.filter);
  if (!packed) return {};
  calls.ReserveScratch(ctx);
  const auto bias = std::make_shared<const std::vector<float>>(epilogue.bias);
  return [=, input = args.input, residual = args.residual, output = args.output](Workspace& ws) {
    const void* added = residual ? ws.Data<const void>(residual) : nullptr;
    if (added == ws.Data<const void>(output)) added = nullptr;  // already in place
    calls.ForEach([&](const PartCalls::One& part, int64_t) {
      const void* in = Element(ws.Data<const void>(input), input.dtype, part.input);
      void* to = Element(ws.Data<void>(output), output.dtype, part.output);
      const void* pad = ws.Data<void>(part.scratchpad);
      if (added) {
        std::memcpy(to, Element(added, residual.dtype, part.output),
                    ByteSize(residual.dtype, {part.outputs}));
      }
      if (with_bias) {
        part.call.Run({in, packed->raw(), to, bias->data(), pad});
      } else {
        part.call.Run({in, packed->raw(), to, pad});
      }
    });
  };
}

// One part for each thread, or more, so that a residual copied to the output stays in the cache.
int64_t PartsOf(const QuantizedConvArgs& args) {
  constexpr int64_t kBytesInCache = 512 * 1024;
  const ConvGeometry& g = args.g;
  const bool cut = args.residual && g.FilterNumel() <= kBytesInCache;
  const int64_t bytes = static_cast<int64_t>(ByteSize(args.output.dtype, {g.OutputNumel()}));
  return std::max(BytePartsWanted(g), cut ? bytes / kBytesInCache : 1);
}

}  // namespace

Kernel QuantizedConvInOneDnn(const PrepareContext& ctx, const QuantizedConvArgs& args,
                             const ConvFilter& filter) {
  if (args.raw_sums() || filter.with_ones || HasEmptyWindow(args.g)) return {};
  // Without exact products, oneDNN also halves the filter if the images are int8.
  constexpr int32_t kPairFits = 64;
  if (!ExactIntegerProducts() &&
      (args.input.dtype != DType::kUInt8 || filter.rows.largest > kPairFits))
    return {};
  const auto epilogue = EpilogueOf(ctx, args, filter);
  if (!epilogue) return {};
  try {
    return MakeOfParts(args.g, SplitOutputs(args.g, PartsOf(args)),
                       [&](const std::vector<ConvPart>& parts) {
                         return MakeCalls(ctx, args, filter, *epilogue, parts);
                       });
  } catch (const dnnl::error&) {
    return {};
  }
}

}  // namespace coracle::inline internal
#endif
