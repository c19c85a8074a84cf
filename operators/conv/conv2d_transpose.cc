#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/conv/conv.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <array>

namespace coracle {
namespace {

// The transposed convolution of X is the gradient of conv2d with respect to its input, with X as
// the output's gradient: "conv" below is that convolution, from our Output to our Input.

// Paddings {top, bottom, left, right}. SAME depends on the size of Input: -1 where not known.
std::array<int64_t, 4> PaddingsOf(const WindowSpec& spec, const int64_t (&in)[2],
                                  const int64_t (&kernel)[2]) {
  std::array<int64_t, 4> pads{};
  if (spec.padding_algorithm == "VALID") return pads;
  for (size_t axis : {0, 1}) {
    if (spec.padding_algorithm != "SAME") {
      const bool four = spec.paddings.size() == 4;
      pads[2 * axis] = spec.paddings[four ? 2 * axis : axis];
      pads[2 * axis + 1] = spec.paddings[four ? 2 * axis + 1 : axis];
      continue;
    }
    if (in[axis] < 0 || kernel[axis] < 0) {
      pads[2 * axis] = pads[2 * axis + 1] = -1;
      continue;
    }
    const int64_t stride = spec.strides[axis];
    const int64_t last = in[axis] > 0 ? (in[axis] - 1) / stride * stride : 0;
    const int64_t total = std::max<int64_t>(last + kernel[axis] - in[axis], 0);
    pads[2 * axis] = total / 2;
    pads[2 * axis + 1] = total - total / 2;
  }
  return pads;
}

int64_t DilationOf(const WindowSpec& spec, size_t axis) {
  return spec.padding_algorithm == "SAME" ? 1 : spec.dilations[axis];
}

// The two extra-size attrs: absent or two numbers each.
void CheckExtra(const InferContext& ctx, const char* attr) {
  const auto values = ctx.Attr<std::vector<int32_t>>(attr);
  ctx.Require("C5", values.empty() || values.size() == 2, attr, values);
}

// Size of Output along one axis; -1 when not known.
int64_t OutSize(const InferContext& ctx, const WindowSpec& spec, size_t axis, int64_t in,
                int64_t kernel, const std::array<int64_t, 4>& pads) {
  if (in < 0 || kernel < 0 || pads[2 * axis] < 0) return -1;
  ctx.Require("C7", in > 0 && kernel > 0, "Input", in, "Filter", kernel);
  const int64_t stride = spec.strides[axis];
  int64_t out = AddDims(MulDims(in - 1, stride), MulDims(DilationOf(spec, axis), kernel - 1) + 1) -
                pads[2 * axis] - pads[2 * axis + 1];
  const auto extra = ctx.Attr<std::vector<int32_t>>("output_padding");
  const auto size = ctx.Attr<std::vector<int32_t>>("output_size");
  if (!size.empty()) {
    ctx.Require("C6", size[axis] >= out && size[axis] < out + stride, "output_size", size[axis],
                "size", out, "stride", stride);
    out = size[axis];
  } else if (!extra.empty()) {
    ctx.Require("C6", extra[axis] >= 0 && extra[axis] < stride, "output_padding", extra[axis],
                "stride", stride);
    out = AddDims(std::max<int64_t>(out, 0), extra[axis]) + std::min<int64_t>(out, 0);
  }
  ctx.Require("C7", out > 0, "Output", out);
  return out;
}

void InferConvTranspose(InferContext& ctx) {
  VarMeta meta = ctx.Input("Input");
  const Shape input = meta.shape, filter = ctx.InputShape("Filter");
  ctx.Require("C1", input.rank() == 4, input.rank());
  ctx.Require("C2", filter.rank() == 4, filter.rank());
  const WindowSpec spec = ConvWindow(ctx);
  if (!PaddingAlgorithmIsKnown(spec))
    ctx.Fail("C3", "padding_algorithm", "'" + spec.padding_algorithm.substr(0, 40) + "'");
  ctx.Require("C3", StridesAreValid(spec), "strides", spec.strides);
  ctx.Require("C3", PaddingsAreValid(spec), "paddings", spec.paddings);
  ctx.Require("C3", DilationsAreValid(spec), "dilations", spec.dilations);
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"));
  const int64_t groups = ctx.Attr<int32_t>("groups"), channels = input[layout.channel()];
  ctx.Require("C4",
              groups > 0 && InferContext::Matches(channels, filter[0]) &&
                  (filter[0] < 0 || filter[0] % groups == 0),
              "Filter.shape[0]", filter[0], "channels", channels, "groups", groups);
  CheckExtra(ctx, "output_size");
  CheckExtra(ctx, "output_padding");
  const int64_t in[2] = {input[layout.height()], input[layout.width()]};
  const int64_t kernel[2] = {filter[2], filter[3]};
  const auto pads = PaddingsOf(spec, in, kernel);
  const int64_t out_channels = MulDims(filter[1], groups);
  meta.shape[layout.channel()] = out_channels;
  meta.shape[layout.height()] = OutSize(ctx, spec, 0, in[0], kernel[0], pads);
  meta.shape[layout.width()] = OutSize(ctx, spec, 1, in[1], kernel[1], pads);
  ctx.Require("C8", ctx.InputDType("Filter") == meta.dtype, "Filter", ctx.InputDType("Filter"),
              "Input", meta.dtype);
  if (ctx.HasInput("Bias")) {
    const Shape& bias = ctx.InputShape("Bias");
    ctx.Require("C8", ctx.InputDType("Bias") == meta.dtype, "Bias", ctx.InputDType("Bias"), "Input",
                meta.dtype);
    ctx.Require("C9", bias.rank() == 1 && InferContext::Matches(bias[0], out_channels), "Bias",
                bias, "M", out_channels);
  }
  ctx.SetOutput("Output", meta);
}

ConvGeometry ConvOf(const PrepareContext& ctx, const TensorArg& input, const TensorArg& filter,
                    const TensorArg& output) {
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"));
  const WindowSpec spec = ConvWindow(ctx);
  const int64_t in[2] = {input.shape[layout.height()], input.shape[layout.width()]};
  const int64_t kernel[2] = {filter.shape[2], filter.shape[3]};
  const auto pads = PaddingsOf(spec, in, kernel);
  ConvGeometry g;
  g.channels_last = layout.channels_last;
  g.batch = input.shape[0];
  g.in_channels = output.shape[layout.channel()];
  g.out_channels = input.shape[layout.channel()];
  g.groups = ctx.Attr<int32_t>("groups");
  g.h = {output.shape[layout.height()], kernel[0], in[0],  spec.strides[0],
         DilationOf(spec, 0),           pads[0],   pads[1]};
  g.w = {output.shape[layout.width()], kernel[1], in[1],  spec.strides[1],
         DilationOf(spec, 1),          pads[2],   pads[3]};
  return g;
}

template <class T>
void AddBias(const ConvGeometry& g, const T* bias, T* out) {
  const ImageStrides s = g.InStrides();
  // The inner loop goes along memory.
  const int64_t channels = g.in_channels, inner = g.channels_last ? channels : g.w.in;
  const int64_t outer = g.channels_last ? g.w.in : channels;
  const int64_t step = g.channels_last ? s.w : s.c;
  ParallelFor(g.batch * g.h.in, 1 + 65536 / (1 + inner * outer), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* row = out + r / g.h.in * s.n + r % g.h.in * s.h;
      for (int64_t i = 0; i < outer; ++i) {
        for (int64_t k = 0; k < inner; ++k) row[i * step + k] += bias[g.channels_last ? k : i];
      }
    }
  });
}

// One image: every element of Input is spread over its window of Output.
template <class T>
void Spread(const ConvGeometry& g, const T* in, const T* w, T* out) {
  const ImageStrides from = g.OutStrides(), to = g.InStrides();
  const int64_t per_group = g.in_channels / g.groups;
  for (int64_t m = 0; m < g.out_channels; ++m) {
    const int64_t first = m / (g.out_channels / g.groups) * per_group;
    for (int64_t y = 0; y < g.h.out; ++y) {
      for (int64_t x = 0; x < g.w.out; ++x) {
        const T value = in[m * from.c + y * from.h + x * from.w];
        for (int64_t c = 0; c < per_group; ++c) {
          const T* kernel = w + (m * per_group + c) * g.h.kernel * g.w.kernel;
          for (int64_t i = 0; i < g.h.kernel; ++i) {
            const int64_t row = g.h.Start(y) + i * g.h.dilation;
            if (row < 0 || row >= g.h.in) continue;
            for (int64_t j = 0; j < g.w.kernel; ++j) {
              const int64_t column = g.w.Start(x) + j * g.w.dilation;
              if (column < 0 || column >= g.w.in) continue;
              out[(first + c) * to.c + row * to.h + column * to.w] +=
                  value * kernel[i * g.w.kernel + j];
            }
          }
        }
      }
    }
  }
}

template <class T>
KernelOf<T> ConvTransposeReference(const PrepareContext& ctx) {
  const TensorArg input = ctx.Input("Input"), filter = ctx.Input("Filter");
  const TensorArg bias = ctx.Input("Bias"), output = ctx.Output("Output");
  if (output.numel == 0) return [](Workspace&) {};
  const ConvGeometry g = ConvOf(ctx, input, filter, output);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(input);
    const T* w = ws.Data<const T>(filter);
    T* out = ws.Data<T>(output);
    const int64_t image_in = g.OutStrides().n, image_out = g.InStrides().n;
    ParallelFor(g.batch, 1, [&](int64_t begin, int64_t end) {
      std::fill(out + begin * image_out, out + end * image_out, T(0));
      for (int64_t n = begin; n < end; ++n) Spread(g, in + n * image_in, w, out + n * image_out);
    });
    if (bias) AddBias(g, ws.Data<const T>(bias), out);
  };
}

Kernel ConvTransposeFast(const PrepareContext& ctx) {
  const TensorArg input = ctx.Input("Input"), filter = ctx.Input("Filter");
  const TensorArg bias = ctx.Input("Bias"), output = ctx.Output("Output");
  if (input.dtype != DType::kFloat32 || output.numel == 0 || input.numel == 0) return {};
  const ConvGeometry g = ConvOf(ctx, input, filter, output);
  ConvBackwardArgs args;
  args.filter = filter;
  args.dout = input;
  args.dinput = output;
  Kernel spread = ConvBackwardFast(ctx, g, args);
  if (!spread || !bias) return spread;
  return [=](Workspace& ws) {
    spread(ws);
    AddBias(g, ws.Data<const float>(bias), ws.Data<float>(output));
  };
}

// With conv the convolution from Output to Input:
//   Input@GRAD = conv(Output@GRAD, Filter), Filter@GRAD = that of conv2d_grad for input Output@GRAD
//   and output gradient Input, Bias@GRAD = sum of Output@GRAD.
void ConvTransposeGradient(GradientContext& g) {
  const std::string dout = g.OutputGrad("Output");
  const std::string input = g.Input("Input"), filter = g.Input("Filter");
  const Shape &in = g.MetaOf(input).shape, &kernel = g.MetaOf(filter).shape;
  const ImageLayout layout = ImageLayoutOf(g.Attr<std::string>("data_format"));
  const WindowSpec spec = ConvWindow(g);
  const int64_t sizes[2] = {in[layout.height()], in[layout.width()]};
  const auto pads = PaddingsOf(spec, sizes, {kernel[2], kernel[3]});
  std::vector<int32_t> paddings;
  for (int64_t pad : pads) {
    if (pad < 0)
      throw Error(ErrorCode::kUnimplemented,
                  g.op().type() +
                      ": the gradient with padding_algorithm SAME needs the height "
                      "and width of Input when the program is built");
    paddings.push_back(static_cast<int32_t>(pad));
  }
  const AttrList attrs = {
      {"strides", spec.strides},
      {"paddings", paddings},
      {"dilations", std::vector<int32_t>{static_cast<int32_t>(DilationOf(spec, 0)),
                                         static_cast<int32_t>(DilationOf(spec, 1))}},
      {"groups", g.Attr<int32_t>("groups")},
      {"data_format", g.Attr<std::string>("data_format")}};
  g.Set("Input", g.Make("conv2d", {{"Input", {dout}}, {"Filter", {filter}}}, attrs, "Output"));
  g.Set("Filter",
        g.Make("conv2d_grad", {{"Input", {dout}}, {"Filter", {filter}}, {"Output@GRAD", {input}}},
               attrs, "Filter@GRAD"));
  if (!g.NeedsInputGrad("Bias")) return;
  g.Set("Bias", Sum(g.Grad("Output"), layout.channels_last ? std::vector<int32_t>{0, 1, 2}
                                                           : std::vector<int32_t>{0, 2, 3}));
}

void Add(OpRegistry& ops, const std::string& type) {
  ops.Add(
      OpDef(type)
          .Doc("Transposed convolution: every element of Input, times the filters of its channel, "
               "is added to a window of Output. Output size: (in - 1) * stride - pad_before - "
               "pad_after + dilation * (kernel - 1) + 1 + output_padding, or output_size.")
          .Constraint("C1", "Input must have rank 4")
          .Constraint("C2", "Filter must have rank 4")
          .Constraint("C3",
                      "strides and dilations must be two positive numbers, paddings two or four "
                      "numbers >= 0, and padding_algorithm known")
          .Constraint("C4", "Filter.shape[0] must be Input's channels, and groups divide it")
          .Constraint("C5", "output_size and output_padding must be empty or two numbers")
          .Constraint(
              "C6", "output_size must lie in [size, size + stride), output_padding in [0, stride)")
          .Constraint("C7", "Input, Filter and Output must not be empty in height or width")
          .Constraint("C8", "all inputs must have one dtype")
          .Constraint("C9", "Bias must have shape [M]")
          .Input("Input", "images [N, C, H, W], or [N, H, W, C] for NHWC")
          .Input("Filter", "filters [C, M / groups, kh, kw] in either layout")
          .OptionalInput("Bias", "[M], added to every output channel")
          .Output("Output", "[N, M, H', W'], or [N, H', W', M] for NHWC")
          .Attr<std::vector<int32_t>>("strides", {1, 1}, "step of the window: {height, width}")
          .Attr<std::vector<int32_t>>("paddings", {0, 0},
                                      "cut off Output: {height, width} or {top, bottom, left, "
                                      "right}")
          .Attr<std::string>("padding_algorithm", "EXPLICIT",
                             "EXPLICIT: as paddings says; SAME, VALID: as conv2d's on Input")
          .OneOf({"EXPLICIT", "SAME", "VALID"})
          .Attr<std::vector<int32_t>>("dilations", {1, 1}, "distance of kernel elements")
          .Attr<int32_t>("groups", 1, "channels are split into so many groups")
          .Attr<std::vector<int32_t>>("output_size", {}, "{height, width} of Output")
          .Attr<std::vector<int32_t>>("output_padding", {}, "rows and columns added to Output")
          .Attr<std::string>("data_format", "NCHW", "layout of Input and Output: NCHW or NHWC")
          .OneOf({"NCHW", "NHWC", "AnyLayout"})
          .Attr<bool>("is_test", false, "accepted, without effect")
          .ImageLayout("data_format", {"Input", "Output"})
          .NoLod()
          .Infer(InferConvTranspose)
          .Gradient(ConvTransposeGradient)
          .Reference(ConvTransposeReference<float>, ConvTransposeReference<double>)
          .Fast(ConvTransposeFast));
}

}  // namespace

void RegisterConv2dTranspose(OpRegistry& ops) {
  Add(ops, "conv2d_transpose");
  Add(ops, "depthwise_conv2d_transpose");
}

}  // namespace coracle
