#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv_onednn.h>

#ifdef CORACLE_ONEDNN
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/conv/conv_calls.h>
#include <coracle/operators/conv/conv_parts.h>
#include <coracle/operators/kernels/onednn.h>
#include <coracle/operators/kernels/onednn_scope.h>
#include <coracle/operators/kernels/simd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {
namespace {

using dnnl::memory;
using Tag = dnnl::memory::format_tag;

// The descriptors of the three convolution primitives. Images stay in the caller's plain layout, so
// that they need no reorder; the primitive chooses the layout of the filter.
struct Descs {
  memory::desc src, dst, filter_any, filter, bias;
  memory::dims strides, dilations, before, after;
  dnnl::primitive_attr attr;
};

Descs DescsOf(const ConvGeometry& g, DType dtype, DType filter_dtype, DType dst_dtype) {
  Descs d;
  memory::dims src{g.batch, g.in_channels}, dst{g.batch, g.out_channels};
  memory::dims dims{g.out_channels / g.groups, g.in_channels / g.groups};
  if (g.groups > 1) dims.insert(dims.begin(), g.groups);
  for (int i = 0; i < g.axes; ++i) {
    const WindowAxis& axis = g.axis(i);
    src.push_back(axis.in);
    dst.push_back(axis.out);
    dims.push_back(axis.kernel);
    d.strides.push_back(axis.stride);
    d.dilations.push_back(axis.dilation - 1);
    d.before.push_back(axis.before);
    d.after.push_back(axis.after);
  }
  const bool volumes = g.axes == 3, groups = g.groups > 1;
  const Tag image =
      g.channels_last ? (volumes ? Tag::ndhwc : Tag::nhwc) : (volumes ? Tag::ncdhw : Tag::nchw);
  const Tag filter =
      groups ? (volumes ? Tag::goidhw : Tag::goihw) : (volumes ? Tag::oidhw : Tag::oihw);
  d.src = onednn::Desc(src, image, dtype);
  d.dst = onednn::Desc(dst, image, dst_dtype);
  d.filter_any = onednn::Desc(dims, Tag::any, filter_dtype);
  d.filter = onednn::Desc(dims, filter, filter_dtype);
  d.bias = onednn::Vector(g.out_channels, filter_dtype);
  d.attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return d;
}
Descs DescsOf(const ConvGeometry& g, DType dtype, DType filter_dtype) {
  return DescsOf(g, dtype, filter_dtype, dtype);
}

dnnl::convolution_forward::primitive_desc ForwardDesc(const Descs& d, bool bias,
                                                      dnnl::prop_kind kind) {
  using Forward = dnnl::convolution_forward;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  Forward::desc desc = bias ? Forward::desc(kind, algorithm, d.src, d.filter_any, d.bias, d.dst,
                                            d.strides, d.dilations, d.before, d.after)
                            : Forward::desc(kind, algorithm, d.src, d.filter_any, d.dst, d.strides,
                                            d.dilations, d.before, d.after);
  return {desc, d.attr, onednn::Engine()};
}

// The number of threads worth using, by the number of products.
int64_t PartsWanted(const ConvGeometry& g) {
  const double products = static_cast<double>(g.OutputNumel()) *
                          static_cast<double>(g.FilterNumel()) /
                          static_cast<double>(g.out_channels);
  return static_cast<int64_t>(std::min<double>(NumThreads(), 1 + products / 300e3));
}

// A filter in the primitive's layout: the variable itself, or scratch memory with a reorder.
struct FilterCopy {
  TensorArg arg;
  onednn::Reorder reorder;                 // empty if the layouts agree or the filter is constant
  std::shared_ptr<const Tensor> constant;  // the copy of a constant filter

  // The filter in the primitive's layout.
  const void* Read(Workspace& ws, const TensorArg& filter) const {
    if (constant) return constant->raw();
    if (reorder) reorder.Run(ws.Data<const void>(filter), ws.Data<void>(arg));
    return ws.Data<const void>(arg);
  }
};

Tensor Reordered(const memory::desc& from, const memory::desc& to, const Tensor& given,
                 Tensor made) {
  const onednn::Scope inside;
  onednn::Translate("reorder", [&] { onednn::Reorder(from, to).Run(given.raw(), made.raw()); });
  return made;
}

PackedLayout LayoutOf(const memory::desc& plain, const memory::desc& wanted,
                      const TensorArg& filter) {
  PackedLayout layout{"onednn ", {}, {}};
  layout.id.append(reinterpret_cast<const char*>(&wanted.data), sizeof wanted.data);
  const auto floats = static_cast<int64_t>((wanted.get_size() + sizeof(float) - 1) / sizeof(float));
  layout.pack = [=](const Tensor& given) {
    return Reordered(plain, wanted, given, Tensor(DType::kFloat32, {floats}));
  };
  layout.unpack = [=, dtype = filter.dtype, shape = filter.shape](const Tensor& packed) {
    return Reordered(wanted, plain, packed, Tensor(dtype, shape));
  };
  return layout;
}

FilterCopy CopyToRead(const PrepareContext& ctx, const memory::desc& plain,
                      const memory::desc& wanted, const TensorArg& filter) {
  if (plain == wanted) return {filter, {}, {}};
  const onednn::Reorder reorder(plain, wanted);
  if (auto packed = ctx.Packed("Filter", LayoutOf(plain, wanted, filter))) return {{}, {}, packed};
  return {onednn::ScratchFor(ctx, wanted), reorder, {}};
}

// Whether oneDNN applies the activation to its sums in registers. Its relu, clip and similar
// activations turn a nan into a number, and its gelu is not accurate enough: these need a sweep
// over each part.
bool IsPostOp(const ConvActivation& activation) {
  const std::string_view name = activation.name();
  return name == "hard_swish" || name == "swish";
}

dnnl::post_ops PostOpsOf(const ConvForwardArgs& args) {
  dnnl::post_ops ops;
  if (args.residual) ops.append_sum(1.0f);
  const std::string_view name = args.activation.name();
  if (name == "hard_swish")
    ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_hardswish, 0.0f, 0.0f);
  else if (name == "swish")
    ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_swish, args.activation.alpha(), 0.0f);
  return ops;
}

// The number of parts: one for each thread, or more, so that a part's output is still in the cache
// for the operations after oneDNN's. Each part reads the filter again.
int64_t ForwardParts(const ConvGeometry& g, const ConvForwardArgs& args) {
  constexpr int64_t kFloatsInCache = 192 * 1024;
  const bool sweep = args.residual || (args.activation && !IsPostOp(args.activation));
  const bool cut = sweep && g.channels_last && g.FilterNumel() <= kFloatsInCache / 2;
  return std::max(PartsWanted(g), cut ? g.OutputNumel() / kFloatsInCache : 1);
}

Kernel MakeForward(const PrepareContext& ctx, const std::vector<ConvPart>& parts,
                   const ConvForwardArgs& args) {
  const DType dtype = args.input.dtype;
  const bool bias = static_cast<bool>(args.bias);
  PartCalls calls;
  Descs d;
  // Residual and activation of bfloat16 sums are computed in float32, in scratch memory.
  const bool wide = dtype != DType::kFloat32 && (args.residual || args.activation);
  const DType sum_dtype = wide ? DType::kFloat32 : dtype;
  for (const ConvPart& part : parts) {
    d = DescsOf(part.g, dtype, dtype, sum_dtype);
    if (bias) d.bias = onednn::Vector(part.g.out_channels, args.bias.dtype);
    if (sum_dtype == DType::kFloat32) d.attr.set_post_ops(PostOpsOf(args));
    auto pd = ForwardDesc(d, bias, dnnl::prop_kind::forward_inference);
    if (dtype != DType::kFloat32 && IsPlainLoop(pd)) return {};
    if (args.residual && MayAddUnaligned(pd)) return {};
    onednn::Call call{dnnl::convolution_forward(pd)};
    call.Arg(DNNL_ARG_SRC, d.src).Arg(DNNL_ARG_WEIGHTS, pd.weights_desc());
    call.Arg(DNNL_ARG_DST, d.dst);
    if (bias) call.Arg(DNNL_ARG_BIAS, d.bias);
    calls.Add(part, pd, pd.weights_desc(), call);
  }
  calls.ReserveScratch(ctx);
  const FilterCopy filter = CopyToRead(ctx, d.filter, calls.filter, args.filter);
  const ConvActivation after = IsPostOp(args.activation) ? ConvActivation() : args.activation;
  const TensorArg sums = wide ? ctx.Scratch(DType::kFloat32, {args.output.numel}) : args.output;
  return [=](Workspace& ws) {
    const void* w = filter.Read(ws, args.filter);
    const void* residual = args.residual ? ws.Data<const void>(args.residual) : nullptr;
    if (residual == ws.Data<const void>(sums)) residual = nullptr;  // already in place
    calls.ForEach([&](const PartCalls::One& part, int64_t) {
      const void* in = Element(ws.Data<const void>(args.input), dtype, part.input);
      void* to = Element(ws.Data<void>(sums), sum_dtype, part.output);
      const void* pad = ws.Data<void>(part.scratchpad);
      if (residual && wide) {
        HalfToFloat(dtype, Element(residual, dtype, part.output), static_cast<float*>(to),
                    part.outputs);
      } else if (residual) {
        std::memcpy(to, Element(residual, dtype, part.output),
                    static_cast<size_t>(part.outputs) * sizeof(float));
      }
      if (bias) {
        part.call.Run({in, w, to, ws.Data<const void>(args.bias), pad});
      } else {
        part.call.Run({in, w, to, pad});
      }
      if (after) after.ApplyFast(static_cast<float*>(to), part.outputs);
      if (wide) {
        FloatToHalf(static_cast<const float*>(to), dtype,
                    Element(ws.Data<void>(args.output), dtype, part.output), part.outputs);
      }
    });
  };
}

Kernel MakeDataGrad(const PrepareContext& ctx, const std::vector<ConvPart>& parts,
                    const ConvBackwardArgs& args) {
  using Backward = dnnl::convolution_backward_data;
  const DType dtype = args.dout.dtype;
  PartCalls calls;
  Descs d;
  for (const ConvPart& part : parts) {
    d = DescsOf(part.g, dtype, dtype);
    auto hint = ForwardDesc(d, false, dnnl::prop_kind::forward_training);
    Backward::primitive_desc pd({dnnl::algorithm::convolution_direct, d.src, d.filter_any, d.dst,
                                 d.strides, d.dilations, d.before, d.after},
                                d.attr, onednn::Engine(), hint);
    if (dtype != DType::kFloat32 && IsPlainLoop(pd)) return {};
    onednn::Call call{Backward(pd)};
    call.Arg(DNNL_ARG_DIFF_DST, d.dst).Arg(DNNL_ARG_WEIGHTS, pd.weights_desc());
    call.Arg(DNNL_ARG_DIFF_SRC, d.src);
    calls.Add(part, pd, pd.weights_desc(), call);
  }
  calls.ReserveScratch(ctx);
  const FilterCopy filter = CopyToRead(ctx, d.filter, calls.filter, args.filter);
  return [=](Workspace& ws) {
    const void* w = filter.Read(ws, args.filter);
    calls.ForEach([&](const PartCalls::One& part, int64_t) {
      part.call.Run({Element(ws.Data<const void>(args.dout), dtype, part.output), w,
                     Element(ws.Data<void>(args.dinput), dtype, part.input),
                     ws.Data<void>(part.scratchpad)});
    });
  };
}

// Memory for the parts' shares of a gradient, in float32: the first share is written to `sum`, the
// others one after the other to `rest`. The shares are added in order, and `reorder` converts the
// sum to the variable's layout.
struct Shares {
  TensorArg sum, rest;
  int64_t stride = 0;  // floats of one share
  onednn::Reorder reorder;

  Shares() = default;
  Shares(const PrepareContext& ctx, size_t parts, const memory::desc& made,
         const memory::desc& wanted, const TensorArg& variable)
      : sum(variable), stride(static_cast<int64_t>(made.get_size() / sizeof(float))) {
    if (made != wanted) {
      reorder = onednn::Reorder(made, wanted);
      sum = onednn::ScratchFor(ctx, made);
    }
    if (parts > 1)
      rest = ctx.Scratch(DType::kFloat32, {CheckedMul(static_cast<int64_t>(parts - 1), stride)});
  }

  void* Of(Workspace& ws, int64_t part) const {
    return part == 0 ? ws.Data<void>(sum) : ws.Data<float>(rest) + (part - 1) * stride;
  }
  void Finish(Workspace& ws, size_t parts, const TensorArg& variable) const {
    if (parts > 1) {
      float* out = ws.Data<float>(sum);
      const float* more = ws.Data<const float>(rest);
      ParallelFor(stride, 16384, [&](int64_t begin, int64_t end) {
        for (size_t p = 0; p + 1 < parts; ++p) {
          const float* share = more + static_cast<int64_t>(p) * stride;
          for (int64_t i = begin; i < end; ++i) out[i] += share[i];
        }
      });
    }
    if (reorder) reorder.Run(ws.Data<const void>(sum), ws.Data<void>(variable));
  }
};

// Whether oneDNN writes past the end of its scratch memory. Its kernels for 1 x 1 filters with a
// stride above 1 first gather the pixels that they read. For the filter gradient, with channels
// last and fewer channels than a register holds (8 or 16), it spaces the pixels as if the register
// were full, but allocates memory for the channels only. (Seen with 2.6; 3.12 is reported to do
// the same.)
bool WritesBehindScratch(const ConvGeometry& g, const char* implementation) {
  bool strided = false;
  for (int i = 0; i < g.axes; ++i) strided |= g.axis(i).stride > 1;
  constexpr int64_t kRegister = 16;
  return g.channels_last && strided && g.in_channels / g.groups < kRegister &&
         std::strstr(implementation, "1x1") != nullptr;
}

Kernel MakeFilterGrad(const PrepareContext& ctx, const std::vector<ConvPart>& parts,
                      const ConvBackwardArgs& args) {
  using Backward = dnnl::convolution_backward_weights;
  const DType dtype = args.dout.dtype;
  // Shares are added in float32 and rounded to bfloat16 once, at the end.
  const DType sum_dtype = parts.size() > 1 ? DType::kFloat32 : dtype;
  const bool bias = static_cast<bool>(args.dbias);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  PartCalls calls;
  Descs d;
  for (const ConvPart& part : parts) {
    d = DescsOf(part.g, dtype, sum_dtype);
    auto hint = ForwardDesc(DescsOf(part.g, dtype, dtype), bias, dnnl::prop_kind::forward_training);
    Backward::desc desc = bias ? Backward::desc(algorithm, d.src, d.filter_any, d.bias, d.dst,
                                                d.strides, d.dilations, d.before, d.after)
                               : Backward::desc(algorithm, d.src, d.filter_any, d.dst, d.strides,
                                                d.dilations, d.before, d.after);
    Backward::primitive_desc pd(desc, d.attr, onednn::Engine(), hint);
    while (WritesBehindScratch(part.g, pd.impl_info_str())) {
      if (!pd.next_impl()) throw dnnl::error(dnnl_unimplemented, "no kernel without an overrun");
    }
    if (dtype != DType::kFloat32 && IsPlainLoop(pd)) return {};
    onednn::Call call{Backward(pd)};
    call.Arg(DNNL_ARG_SRC, d.src).Arg(DNNL_ARG_DIFF_DST, d.dst);
    call.Arg(DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc());
    if (bias) call.Arg(DNNL_ARG_DIFF_BIAS, d.bias);
    calls.Add(part, pd, pd.diff_weights_desc(), call);
  }
  calls.ReserveScratch(ctx);
  const Descs wanted = DescsOf(parts[0].g, dtype, dtype);
  const Shares filter(ctx, parts.size(), calls.filter, wanted.filter, args.dfilter);
  const Shares of_bias =
      bias ? Shares(ctx, parts.size(), d.bias, wanted.bias, args.dbias) : Shares();
  return [=](Workspace& ws) {
    calls.ForEach([&](const PartCalls::One& part, int64_t i) {
      const void* in = Element(ws.Data<const void>(args.input), dtype, part.input);
      const void* dout = Element(ws.Data<const void>(args.dout), dtype, part.output);
      const void* pad = ws.Data<void>(part.scratchpad);
      if (bias) {
        part.call.Run({in, dout, filter.Of(ws, i), of_bias.Of(ws, i), pad});
      } else {
        part.call.Run({in, dout, filter.Of(ws, i), pad});
      }
    });
    filter.Finish(ws, calls.parts.size(), args.dfilter);
    if (bias) of_bias.Finish(ws, calls.parts.size(), args.dbias);
  };
}

// A share of the filter gradient takes as much memory as the filter, so each must sum over at least
// 64 output positions.
int64_t SharesWanted(const ConvGeometry& g) {
  return std::min(PartsWanted(g), 1 + g.batch * g.OutPixels() / 64);
}

Kernel MakeDataGradOfParts(const PrepareContext& ctx, const ConvGeometry& g,
                           const ConvBackwardArgs& args) {
  return MakeOfParts(g, SplitInputs(g, PartsWanted(g)), [&](const std::vector<ConvPart>& parts) {
    return MakeDataGrad(ctx, parts, args);
  });
}

// With channels last, oneDNN computes gradients of volumes for sixteen channels at a time. With
// only a few channels, matrix products in the other layout are faster, including the
// two conversions.
bool IsFasterPlanar(const ConvGeometry& g) {
  return g.axes == 3 && g.channels_last && g.groups == 1 && g.in_channels <= 4;
}

Kernel MakePlanarDataGrad(const PrepareContext& ctx, const ConvGeometry& g,
                          const ConvBackwardArgs& args) {
  const onednn::Scope inside;
  ConvGeometry planar = g;
  planar.channels_last = false;
  const Descs from = DescsOf(g, DType::kFloat32, DType::kFloat32);
  const Descs to = DescsOf(planar, DType::kFloat32, DType::kFloat32);
  ConvBackwardArgs its = args;
  its.dout = onednn::ScratchFor(ctx, to.dst);
  its.dinput = onednn::ScratchFor(ctx, to.src);
  const onednn::Reorder before(from.dst, to.dst), after(to.src, from.src);
  const Kernel data = MakeDataGradOfParts(ctx, planar, its);
  return [=](Workspace& ws) {
    before.Run(ws.Data<const void>(args.dout), ws.Data<void>(its.dout));
    data(ws);
    after.Run(ws.Data<const void>(its.dinput), ws.Data<void>(args.dinput));
  };
}

}  // namespace

Kernel ConvForwardOneDnn(const PrepareContext& ctx, const ConvGeometry& g,
                         const ConvForwardArgs& args) {
  try {
    return MakeOfParts(
        g, SplitOutputs(g, ForwardParts(g, args)),
        [&](const std::vector<ConvPart>& parts) { return MakeForward(ctx, parts, args); });
  } catch (const dnnl::error&) {
    return {};
  }
}

Kernel ConvBackwardOneDnn(const PrepareContext& ctx, const ConvGeometry& g,
                          const ConvBackwardArgs& args) {
  try {
    // oneDNN computes the bias gradient only together with the filter gradient.
    const bool bias_alone = args.dbias && !args.dfilter;
    if (bias_alone && args.dout.dtype != DType::kFloat32) return {};
    Kernel data, filter;
    if (args.dinput) {
      const bool planar = args.dout.dtype == DType::kFloat32 && IsFasterPlanar(g);
      data = planar ? MakePlanarDataGrad(ctx, g, args) : MakeDataGradOfParts(ctx, g, args);
      if (!data) return {};
    }
    if (args.dfilter) {
      filter = MakeOfParts(
          g, SplitOutputs(g, SharesWanted(g)),
          [&](const std::vector<ConvPart>& parts) { return MakeFilterGrad(ctx, parts, args); });
      if (!filter) return {};
    }
    const bool floats = args.dbias && args.dout.dtype == DType::kFloat32;
    return [=](Workspace& ws) {
      if (filter) filter(ws);
      if (data) data(ws);
      // A partial sum of oneDNN may overflow a float.
      float* dbias = floats ? ws.Data<float>(args.dbias) : nullptr;
      if (dbias && (bias_alone || !simd::AllFinite(dbias, g.out_channels)))
        ConvBiasGrad(g, ws.Data<const float>(args.dout), dbias);
    };
  } catch (const dnnl::error&) {
    return {};
  }
}

}  // namespace coracle::inline internal

#else

namespace coracle::inline internal {

Kernel ConvForwardOneDnn(const PrepareContext&, const ConvGeometry&, const ConvForwardArgs&) {
  return {};
}
Kernel ConvBackwardOneDnn(const PrepareContext&, const ConvGeometry&, const ConvBackwardArgs&) {
  return {};
}

}  // namespace coracle::inline internal

#endif
