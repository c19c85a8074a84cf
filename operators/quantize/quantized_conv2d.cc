#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/conv/conv_rules.h>
#include <coracle/operators/conv/conv_sums.h>
#include <coracle/operators/quantize/quantized.h>
#include <coracle/operators/quantize/quantized_conv.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <cmath>

namespace coracle::quantized_conv2d_op {

// --- shape rule ---

// Whether the shape is [1], or [], or with `channels` also [M].
bool IsOneOr(const Shape& shape, bool channels, int64_t out_channels) {
  if (shape.rank() == 0) return true;
  return shape.rank() == 1 && (InferContext::Matches(shape[0], 1) ||
                               (channels && InferContext::Matches(shape[0], out_channels)));
}

void RequireScale(const InferContext& ctx, const char* slot, bool needed, bool channels,
                  int64_t out_channels) {
  ctx.Require("C9", ctx.HasInput(slot) == needed, slot, needed ? "absent" : "present");
  if (!needed) return;
  const VarMeta& scale = ctx.Input(slot);
  ctx.Require("C9", scale.dtype == DType::kFloat32 && IsOneOr(scale.shape, channels, out_channels),
              slot, scale);
}

void RequireZeroPoint(const InferContext& ctx, const char* slot, const char* of, bool channels,
                      int64_t out_channels, DType dtype) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta& zero = ctx.Input(slot);
  ctx.Require("C10",
              zero.dtype == dtype && IsByte(dtype) && IsOneOr(zero.shape, channels, out_channels),
              slot, zero, of, dtype);
}

void RequireResidual(const InferContext& ctx, const Shape& output) {
  const VarMeta& residual = ctx.Input("Residual");
  ctx.Require("C12", residual.dtype == DType::kFloat32 || IsByte(residual.dtype),
              std::string(ToString(residual.dtype)));
  ctx.Require("C12", output.CompatibleWith(residual.shape), residual.shape, output);
}

// The constraints of an output in real units or with a scale.
void RequireReal(const InferContext& ctx, const ConvShapes& shapes, DType out) {
  const int64_t m = shapes.out_channels;
  RequireScale(ctx, "InputScale", true, false, m);
  RequireScale(ctx, "FilterScale", true, true, m);
  RequireScale(ctx, "OutScale", IsByte(out), false, m);
  const bool residual = ctx.HasInput("Residual");
  if (residual) RequireResidual(ctx, shapes.output);
  const DType its = residual ? ctx.InputDType("Residual") : DType::kFloat32;
  RequireScale(ctx, "ResidualScale", IsByte(its), false, m);
  RequireZeroPoint(ctx, "ResidualZeroPoint", "Residual", false, m, its);
  RequireZeroPoint(ctx, "OutZeroPoint", "Output", false, m, out);
}

// The constraints of an output of integer sums.
void RequireSums(const InferContext& ctx) {
  for (const char* slot : {"InputScale", "FilterScale", "OutScale", "OutZeroPoint", "Residual",
                           "ResidualScale", "ResidualZeroPoint"})
    ctx.Require("C13", !ctx.HasInput(slot), slot, "present");
  const auto activation = ctx.Attr<std::string>("fuse_activation");
  ctx.Require("C13", activation.empty(), "fuse_activation", activation);
  if (ctx.HasInput("Bias"))
    ctx.Require("C13", ctx.InputDType("Bias") == DType::kInt32, "Bias", ctx.InputDType("Bias"));
}

void InferQuantizedConv(InferContext& ctx) {
  const ConvShapes shapes = CheckConvShapes(ctx);
  const int64_t m = shapes.out_channels;
  const DType filter = ctx.InputDType("Filter");
  ctx.Require("C8", IsByte(filter), filter);
  const auto out = static_cast<DType>(ctx.Attr<int32_t>("out_dtype"));
  ctx.Require("C13", IsByte(out) || out == DType::kFloat32 || out == DType::kInt32, "out_dtype",
              ctx.Attr<int32_t>("out_dtype"));
  RequireZeroPoint(ctx, "InputZeroPoint", "Input", false, m, ctx.InputDType("Input"));
  RequireZeroPoint(ctx, "FilterZeroPoint", "Filter", true, m, filter);
  if (ctx.HasInput("Bias")) {
    const VarMeta& bias = ctx.Input("Bias");
    ctx.Require("C11",
                (bias.dtype == DType::kFloat32 || bias.dtype == DType::kInt32) &&
                    bias.shape.rank() == 1 && InferContext::Matches(bias.shape[0], m),
                bias, "M", m);
  }
  if (out == DType::kInt32) {
    RequireSums(ctx);
  } else {
    RequireReal(ctx, shapes, out);
  }
  ctx.SetOutput("Output", out, shapes.output);
}

// --- reference kernel ---

// The numbers of one run after the sums.
struct Finish {
  const QuantizedConvArgs& a;
  Workspace& ws;

  double ScaleOf(const TensorArg& arg, int64_t i = 0) const {
    if (!arg) return 1;
    return static_cast<double>(ws.Data<const float>(arg)[arg.numel == 1 ? 0 : i]);
  }
  int32_t ZeroOf(const TensorArg& arg, int64_t i = 0) const {
    return arg ? IntegerAt(arg.dtype, ws.Data<const void>(arg), arg.numel == 1 ? 0 : i) : 0;
  }
  double Residual(int64_t at) const {
    const void* data = ws.Data<const void>(a.residual);
    if (a.residual.dtype == DType::kFloat32)
      return static_cast<double>(static_cast<const float*>(data)[at]);
    return ScaleOf(a.residual_scale) *
           (IntegerAt(a.residual.dtype, data, at) - ZeroOf(a.residual_zero));
  }
  // The real value of a sum of output channel m, before residual and activation.
  double Real(int64_t sum, int64_t m) const {
    const double scale = ScaleOf(a.input_scale) * ScaleOf(a.filter_scale, m);
    if (!a.bias) return scale * static_cast<double>(sum);
    if (a.bias.dtype == DType::kInt32)
      return scale * static_cast<double>(sum + ws.Data<const int32_t>(a.bias)[m]);
    return scale * static_cast<double>(sum) + static_cast<double>(ws.Data<const float>(a.bias)[m]);
  }

  // Writes outputs [at, at + n); output i has the channel m + i * step.
  template <class Sum>
  void Write(const Sum* sums, int64_t n, int64_t at, int64_t m, int64_t step) const {
    if (a.raw_sums()) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t bias = a.bias ? ws.Data<const int32_t>(a.bias)[m + i * step] : 0;
        ws.Data<int32_t>(a.output)[at + i] = static_cast<int32_t>(sums[i] + bias);
      }
      return;
    }
    double real[kSumsAtATime];
    for (int64_t i = 0; i < n; ++i) {
      real[i] = Real(sums[i], m + i * step);
      if (a.residual) real[i] += Residual(at + i);
    }
    a.activation.Apply(real, n);
    for (int64_t i = 0; i < n; ++i) Store(real[i], at + i);
  }
  void Store(double real, int64_t at) const {
    if (a.output.dtype == DType::kFloat32) {
      ws.Data<float>(a.output)[at] = static_cast<float>(real);
      return;
    }
    const double units = real / ScaleOf(a.out_scale);
    const int32_t zero = ZeroOf(a.out_zero);
    if (a.output.dtype == DType::kInt8)
      ws.Data<int8_t>(a.output)[at] = QuantizeTo<int8_t>(units, zero);
    else
      ws.Data<uint8_t>(a.output)[at] = QuantizeTo<uint8_t>(units, zero);
  }
};

// Rows of outputs of one channel; channels first.
template <class Sum>
void PlaneFirst(const ConvGeometry& g, const Sum* in, const Sum* filter, const Finish& finish,
                int64_t n, int64_t m) {
  const ImageStrides s = g.OutStrides();
  const int64_t taps = g.FilterNumel() / g.out_channels;
  const int64_t first = m / (g.out_channels / g.groups) * (g.in_channels / g.groups);
  for (int64_t y = 0; y < g.h.out; ++y) {
    for (int64_t x = 0; x < g.w.out; x += kSumsAtATime) {
      const int64_t count = std::min(kSumsAtATime, g.w.out - x);
      Sum sums[kSumsAtATime] = {};
      SumPixels(g, in + n * g.InStrides().n, filter + m * taps, first, 0, y, x, x + count, sums);
      finish.Write(sums, count, n * s.n + m * s.c + y * s.h + x, m, 0);
    }
  }
}

// Row y of image n; the filter is transposed.
template <class Sum>
void RowLast(const ConvGeometry& g, const Sum* in, const Sum* filter, const Finish& finish,
             int64_t n, int64_t y) {
  const ImageStrides s = g.OutStrides();
  const int64_t of_group = g.out_channels / g.groups;
  const int64_t taps = g.FilterNumel() / g.out_channels;
  for (int64_t i = 0; i < g.w.out * g.groups; ++i) {
    const int64_t x = i / g.groups, group = i % g.groups;
    for (int64_t k = 0; k < of_group; k += kSumsAtATime) {
      const int64_t count = std::min(kSumsAtATime, of_group - k), m = group * of_group + k;
      Sum sums[kSumsAtATime] = {};
      SumChannels(g, in + n * g.InStrides().n, filter + group * of_group * taps + k, of_group,
                  group * (g.in_channels / g.groups), 0, y, x, count, sums);
      finish.Write(sums, count, n * s.n + y * s.h + x * s.w + m, m, 1);
    }
  }
}

// The integers minus their zero points. `of_channel`: elements of one channel of a filter.
template <class Sum>
void Center(const Finish& run, const TensorArg& tensor, const TensorArg& zero, int64_t of_channel,
            Sum* out) {
  const void* from = run.ws.Data<const void>(tensor);
  for (int64_t i = 0; i < tensor.numel; ++i)
    out[i] = IntegerAt(tensor.dtype, from, i) - run.ZeroOf(zero, i / of_channel);
}

template <class Sum>
Kernel SumsReference(const PrepareContext& ctx, const QuantizedConvArgs& args) {
  const DType dtype = DTypeOf<Sum>();
  const TensorArg images = ctx.Scratch(dtype, {args.input.numel});
  const TensorArg filters = ctx.Scratch(dtype, {args.filter.numel});
  const TensorArg transposed =
      args.g.channels_last ? ctx.Scratch(dtype, {args.filter.numel}) : TensorArg();
  return [=](Workspace& ws) {
    const ConvGeometry& g = args.g;
    if (args.output.numel == 0) return;
    const Finish finish{args, ws};
    const int64_t taps = std::max<int64_t>(g.FilterNumel() / g.out_channels, 1);
    Sum* in = ws.Data<Sum>(images);
    Sum* filter = ws.Data<Sum>(filters);
    Center(finish, args.input, args.input_zero, std::max<int64_t>(args.input.numel, 1), in);
    Center(finish, args.filter, args.filter_zero, taps, filter);
    if (transposed) {
      TransposeFilter(g, filter, ws.Data<Sum>(transposed));
      filter = ws.Data<Sum>(transposed);
    }
    const int64_t pieces = g.channels_last ? g.h.out : g.out_channels;
    ParallelFor(g.batch * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        (g.channels_last ? RowLast<Sum> : PlaneFirst<Sum>)(g, in, filter, finish, i / pieces,
                                                           i % pieces);
    });
  };
}

// Each product is at most 255 * 255, so that int32 holds the sums of small filters.
template <class T>
KernelOf<T> QuantizedConvReference(const PrepareContext& ctx) {
  const QuantizedConvArgs args(ctx);
  const int64_t taps = args.g.FilterNumel() / std::max<int64_t>(args.g.out_channels, 1);
  return {taps <= 33000 ? SumsReference<int32_t>(ctx, args) : SumsReference<int64_t>(ctx, args)};
}

// --- registration ---

void DeclareConstraints(OpDef& def) {
  def.ConstraintsOf("conv2d", {"C1", "C2", "C3", "C4", "C5", "C6", "C7"})
      .Constraint("C8", "Filter must be int8 or uint8")
      .Constraint(
          "C9",
          "scales must be float32 of shape [1], FilterScale [1] or [M], and present for the "
          "8-bit tensors of an op with real output, and for no other tensors")
      .Constraint("C10",
                  "zero points must have the dtype of their 8-bit tensor and shape [1], "
                  "FilterZeroPoint [1] or [M]")
      .Constraint("C11", "Bias must be float32 or int32 of shape [M]")
      .Constraint("C12", "Residual must be int8, uint8 or float32 and have Output's shape")
      .Constraint(
          "C13",
          "out_dtype must be int8, uint8, float32, or int32; with int32 there are no scales, "
          "no OutZeroPoint, no Residual, no activation and no float32 Bias");
}

void DeclareInputs(OpDef& def) {
  def.Input("Input", "int8 or uint8 images [N, C, H, W], or [N, H, W, C] for NHWC")
      .OptionalInput("InputScale", "sx, [1]")
      .OptionalInput("InputZeroPoint", "zx, [1]; absent: 0")
      .Input("Filter", "int8 or uint8 filters [M, C / groups, kernel's axes] in either layout")
      .OptionalInput("FilterScale", "sw, [1] or [M]; may be negative")
      .OptionalInput("FilterZeroPoint", "zw, [1] or [M]; absent: 0")
      .OptionalInput("Bias", "[M]: float32 in real units, or int32 in units of sx sw[m]")
      .OptionalInput("Residual", "int8, uint8 or float32, of Output's shape")
      .OptionalInput("ResidualScale", "sr, [1], of an 8-bit Residual")
      .OptionalInput("ResidualZeroPoint", "zr, [1]; absent: 0")
      .OptionalInput("OutScale", "so, [1], of an 8-bit Output")
      .OptionalInput("OutZeroPoint", "zo, [1]; absent: 0");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("quantized_conv2d")
          .Doc(
              "conv2d of 8-bit integers. An integer q of a tensor with scale s and zero point z "
              "means s (q - z). Output = act(sx sw[m] sum + Bias[m] + sr (Residual - zr)), where "
              "sum is conv2d's sum of (Input - zx) (Filter - zw[m]), padding counts as real 0, and "
              "act is the function of fuse_activation. An 8-bit Output is this value divided by "
              "so, rounded to the nearest integer (ties to the even one), plus zo, limited to its "
              "range; a nan gives the least integer. With out_dtype int32, Output is sum + Bias "
              "itself, of which the lower 32 bits are kept. The fast kernels compute in float32 "
              "after the sums: they may differ by 1 where the exact value is within the rounding "
              "of float32 of a tie. On machines without exact products of 8-bit integers (VNNI, "
              "AMX), they may compute the sums in float32 too, which rounds those above 2^24; "
              "integer Outputs "
              "of sums are always exact.")
          .Apply(DeclareConstraints)
          .Apply(DeclareInputs)
          .Output("Output", "in Input's layout with M channels")
          .AttrsOf("conv2d")
          .Attr<int32_t>("out_dtype", "Output's type: 2 int32, 5 float32, 20 uint8, 21 int8")
          .ImageLayout("data_format", {"Input", "Residual", "Output"})
          .Inplace("Residual", "Output")
          .Rows(EachBatchRow, kEachBatchRow)
          .Tables({"InputScale", "InputZeroPoint", "Filter", "FilterScale", "FilterZeroPoint",
                   "Bias", "ResidualScale", "ResidualZeroPoint", "OutScale", "OutZeroPoint"})
          .MultiplyAdds({}, ConvMultiplyAdds)
          .EachImage()
          .Infer(InferQuantizedConv)
          .NotDifferentiable("integers have no derivative")
          .Reference(QuantizedConvReference<int8_t>, QuantizedConvReference<uint8_t>)
          .Fast(QuantizedConvFast));
}

}  // namespace coracle::quantized_conv2d_op
