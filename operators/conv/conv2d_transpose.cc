#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/op_shapes.h>
#include <coracle/operators/conv/conv.h>
#include <coracle/operators/conv/conv_direct.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <utility>

namespace coracle::conv2d_transpose_op {

// The transposed convolution of X is the gradient of conv2d (or conv3d) with respect to its input,
// with X as the output's gradient: "conv" below is that convolution, from our Output to our Input.

// The convolution's window along each axis; unknown sizes are -1. With SAME, the paddings depend on
// the size of Input and are then -1 too.
WindowAxes ConvAxes(const WindowSpec& spec, const ImageLayout& layout, const Shape& input,
                    const Shape& filter) {
  const bool same = spec.padding_algorithm == "SAME";
  WindowAxes all;
  all.axes = layout.axes;
  for (int i = 0; i < layout.axes; ++i) {
    const auto k = static_cast<size_t>(i);
    WindowAxis& axis = all.axis(i);
    axis.out = input[layout.axis(i)];
    axis.kernel = filter[2 + i];
    axis.stride = spec.strides[k];
    axis.dilation = same ? 1 : spec.dilations[k];
    if (same && (axis.out < 0 || axis.kernel < 0)) {
      axis.before = axis.after = -1;
    } else if (same) {
      const int64_t last = axis.out > 0 ? (axis.out - 1) / axis.stride * axis.stride : 0;
      const int64_t total = std::max<int64_t>(last + axis.kernel - axis.out, 0);
      axis.before = total / 2;
      axis.after = total - total / 2;
    } else if (spec.padding_algorithm == "EXPLICIT") {
      const bool two = spec.paddings.size() == 2 * spec.strides.size();
      axis.before = spec.paddings[two ? 2 * k : k];
      axis.after = spec.paddings[two ? 2 * k + 1 : k];
    }
  }
  return all;
}

template <class Context>
ImageLayout LayoutOf(const Context& ctx) {
  return ImageLayoutOf(ctx.template Attr<std::string>("data_format"), AxesOf(ctx.op().type()));
}

// The two extra-size attrs: absent or one number for each axis.
void CheckExtra(const InferContext& ctx, const char* attr, int axes) {
  const auto values = ctx.Attr<std::vector<int32_t>>(attr);
  ctx.Require("C5", values.empty() || values.size() == static_cast<size_t>(axes), attr, values);
}

// Size of Output along axis i; -1 if unknown.
int64_t OutSize(const InferContext& ctx, const WindowAxis& axis, size_t i) {
  if (axis.out < 0 || axis.kernel < 0 || axis.before < 0) return -1;
  ctx.Require("C7", axis.out > 0 && axis.kernel > 0, "Input", axis.out, "Filter", axis.kernel);
  int64_t out =
      AddDims(MulDims(axis.out - 1, axis.stride), MulDims(axis.dilation, axis.kernel - 1) + 1) -
      axis.before - axis.after;
  const auto extra = ctx.Attr<std::vector<int32_t>>("output_padding");
  const auto size = ctx.Attr<std::vector<int32_t>>("output_size");
  if (!size.empty()) {
    ctx.Require("C6", size[i] >= out && size[i] < out + axis.stride, "output_size", size[i], "size",
                out, "stride", axis.stride);
    out = size[i];
  } else if (!extra.empty()) {
    ctx.Require("C6", extra[i] >= 0 && extra[i] < axis.stride, "output_padding", extra[i], "stride",
                axis.stride);
    out = AddDims(std::max<int64_t>(out, 0), extra[i]) + std::min<int64_t>(out, 0);
  }
  ctx.Require("C7", out > 0, "Output", out);
  return out;
}

void InferConvTranspose(InferContext& ctx) {
  VarMeta meta = ctx.Input("Input");
  const Shape input = meta.shape, filter = ctx.InputShape("Filter");
  const ImageLayout layout = LayoutOf(ctx);
  const int axes = layout.axes;
  ctx.Require("C1", input.rank() == 2 + axes, input.rank());
  ctx.Require("C2", filter.rank() == 2 + axes, filter.rank());
  const WindowSpec spec = ConvWindow(ctx);
  ctx.Require("C3", StridesAreValid(spec, axes), "strides", spec.strides);
  ctx.Require("C3", PaddingsAreValid(spec, axes), "paddings", spec.paddings);
  ctx.Require("C3", DilationsAreValid(spec, axes), "dilations", spec.dilations);
  const int64_t groups = ctx.Attr<int32_t>("groups"), channels = input[layout.channel()];
  ctx.Require("C4",
              groups > 0 && InferContext::Matches(channels, filter[0]) &&
                  (filter[0] < 0 || filter[0] % groups == 0),
              "Filter.shape[0]", filter[0], "channels", channels, "groups", groups);
  CheckExtra(ctx, "output_size", axes);
  CheckExtra(ctx, "output_padding", axes);
  const WindowAxes windows = ConvAxes(spec, layout, input, filter);
  const int64_t out_channels = MulDims(filter[1], groups);
  meta.shape[layout.channel()] = out_channels;
  for (int i = 0; i < axes; ++i)
    meta.shape[layout.axis(i)] = OutSize(ctx, windows.axis(i), static_cast<size_t>(i));
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
  const ImageLayout layout = LayoutOf(ctx);
  ConvGeometry g;
  static_cast<WindowAxes&>(g) = ConvAxes(ConvWindow(ctx), layout, input.shape, filter.shape);
  for (int i = 0; i < layout.axes; ++i) g.axis(i).in = output.shape[layout.axis(i)];
  g.channels_last = layout.channels_last;
  g.batch = input.shape[0];
  g.in_channels = output.shape[layout.channel()];
  g.out_channels = input.shape[layout.channel()];
  g.groups = ctx.Attr<int32_t>("groups");
  LayFlat(g);
  return g;
}

// Adds the bias, if any, and applies the activation: activate(run of elements, its length).
template <class T, class F>
void Finish(const ConvGeometry& g, const T* bias, T* out, F&& activate) {
  const ImageStrides s = g.InStrides();
  // The inner loop runs over contiguous memory.
  const int64_t channels = g.in_channels, inner = g.channels_last ? channels : g.w.in;
  const int64_t outer = g.channels_last ? g.w.in : channels;
  const int64_t step = g.channels_last ? s.w : s.c;
  const int64_t rows = g.d.in * g.h.in;
  ParallelFor(g.batch * rows, 1 + 65536 / (1 + inner * outer), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* row = out + r / rows * s.n + r % rows * s.h;
      for (int64_t i = 0; i < outer; ++i) {
        T* line = row + i * step;
        for (int64_t k = 0; bias && k < inner; ++k) line[k] += bias[g.channels_last ? k : i];
        if (!g.channels_last) activate(line, inner);
      }
      if (g.channels_last) activate(row, inner * outer);
    }
  });
}

// Calls f(position in Output, position in the kernel) for the part of a window that lies in Output.
template <class F>
void ForTaps(const WindowAxis& axis, int64_t at, F&& f) {
  for (int64_t k = 0; k < axis.kernel; ++k) {
    const int64_t to = axis.Start(at) + k * axis.dilation;
    if (to >= 0 && to < axis.in) f(to, k);
  }
}

// One image: every element of Input is spread over its window of Output.
template <class T>
void Spread(const ConvGeometry& g, const T* in, const T* w, T* out) {
  const ImageStrides from = g.OutStrides(), to = g.InStrides();
  const int64_t per_group = g.in_channels / g.groups, rows = g.d.out * g.h.out;
  for (int64_t m = 0; m < g.out_channels; ++m) {
    const int64_t first = m / (g.out_channels / g.groups) * per_group;
    for (int64_t r = 0; r < rows * g.w.out; ++r) {
      const int64_t z = r / g.w.out / g.h.out, y = r / g.w.out % g.h.out, x = r % g.w.out;
      const T value = in[m * from.c + z * from.d + y * from.h + x * from.w];
      for (int64_t c = 0; c < per_group; ++c) {
        const T* kernel = w + (m * per_group + c) * g.d.kernel * g.h.kernel * g.w.kernel;
        T* channel = out + (first + c) * to.c;
        ForTaps(g.d, z, [&](int64_t slice, int64_t l) {
          ForTaps(g.h, y, [&](int64_t row, int64_t i) {
            const T* line = kernel + (l * g.h.kernel + i) * g.w.kernel;
            T* target = channel + slice * to.d + row * to.h;
            ForTaps(g.w, x,
                    [&](int64_t column, int64_t j) { target[column * to.w] += value * line[j]; });
          });
        });
      }
    }
  }
}

template <class T>
KernelOf<T> ConvTransposeReference(const PrepareContext& ctx) {
  const TensorArg input = ctx.Input("Input"), filter = ctx.Input("Filter");
  const TensorArg bias = ctx.Input("Bias"), output = ctx.Output("Output");
  const ConvActivation activation(ctx);
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
    Finish<T>(g, bias ? ws.Data<const T>(bias) : nullptr, out,
              [&](T* x, int64_t n) { activation.Apply(x, n); });
  };
}

Kernel ConvTransposeFast(const PrepareContext& ctx) {
  const TensorArg input = ctx.Input("Input"), filter = ctx.Input("Filter");
  const TensorArg bias = ctx.Input("Bias"), output = ctx.Output("Output");
  const ConvActivation activation(ctx);
  if (input.dtype != DType::kFloat32 || output.numel == 0 || input.numel == 0) return {};
  const ConvGeometry g = ConvOf(ctx, input, filter, output);
  if (Kernel direct = ConvTransposeDirect(ctx, g, {input, filter, bias, {}, output, activation}))
    return direct;
  ConvBackwardArgs args;
  args.filter = filter;
  args.dout = input;
  args.dinput = output;
  Kernel spread = ConvBackwardFast(ctx, g, args);
  if (!spread || !(bias || activation)) return spread;
  return [=](Workspace& ws) {
    spread(ws);
    Finish<float>(g, bias ? ws.Data<const float>(bias) : nullptr, ws.Data<float>(output),
                  [&](float* x, int64_t n) { activation.ApplyFast(x, n); });
  };
}

// With conv the convolution from Output to Input:
//   Input@GRAD = conv(Output@GRAD, Filter), Bias@GRAD = sum of Output@GRAD,
//   Filter@GRAD = Filter@GRAD of conv2d_grad with input Output@GRAD and output gradient Input.
void ConvTransposeGradient(GradientContext& g) {
  const AttrList own = g.ForwardAttrs({"strides", "paddings", "padding_algorithm", "dilations",
                                       "groups", "output_size", "output_padding", "data_format"});
  const Variable sums = GradOfSums(g, g.ForwardInputs({"Input", "Filter", "Bias"}), own);
  const std::string dout = sums.name();
  const std::string input = g.Input("Input"), filter = g.Input("Filter");
  const ImageLayout layout = LayoutOf(g);
  const WindowSpec spec = ConvWindow(g);
  const WindowAxes windows = ConvAxes(spec, layout, g.MetaOf(input).shape, g.MetaOf(filter).shape);
  std::vector<int32_t> paddings, dilations, sum_dims{0};
  for (int i = 0; i < layout.axes; ++i) {
    const WindowAxis& axis = windows.axis(i);
    if (axis.before < 0)
      throw Error(ErrorCode::kUnimplemented,
                  g.op().type() +
                      ": the gradient with padding_algorithm SAME needs the height "
                      "and width of Input when the program is built");
    paddings.push_back(static_cast<int32_t>(axis.before));
    paddings.push_back(static_cast<int32_t>(axis.after));
    dilations.push_back(static_cast<int32_t>(axis.dilation));
    sum_dims.push_back(layout.axis(i));
  }
  const bool volumes = layout.axes == 3;
  const std::string format = std::string("N") + (layout.channels_last ? "" : "C") +
                             (volumes ? "DHW" : "HW") + (layout.channels_last ? "C" : "");
  const AttrList attrs = {{"strides", spec.strides},
                          {"paddings", paddings},
                          {"dilations", dilations},
                          {"groups", g.Attr<int32_t>("groups")},
                          {"data_format", format}};
  const std::string conv = volumes ? "conv3d" : "conv2d";
  g.Set("Input", g.Make(conv, {{"Input", {dout}}, {"Filter", {filter}}}, attrs, "Output"));
  g.Set("Filter",
        g.Make(conv + "_grad", {{"Input", {dout}}, {"Filter", {filter}}, {"Output@GRAD", {input}}},
               attrs, "Filter@GRAD"));
  if (!g.NeedsInputGrad("Bias")) return;
  g.Set("Bias", Sum(sums, sum_dims));
}

// Each input element is multiplied by all elements of a row of the filter [in, out / groups, ...].
double TransposedMultiplyAdds(const OpShapes& op) {
  const Shape *in = op.In("Input"), *filter = op.In("Filter");
  return in && filter ? Elements(*in) * Elements(*filter, 1, filter->rank()) : 0;
}

void Add(OpRegistry& ops, const std::string& type) {
  using Ints = std::vector<int32_t>;
  const int axes = AxesOf(type);
  const bool volumes = axes == 3;
  const auto n = static_cast<size_t>(axes);
  const std::string many = volumes ? "three" : "two", twice = volumes ? "six" : "four";
  const std::string rank = volumes ? "5" : "4";
  OpDef def(type);
  def.Doc(
         "Transposed convolution: every element of Input, times the filters of its channel, "
         "is added to a window of Output. Output size: (in - 1) * stride - pad_before - "
         "pad_after + dilation * (kernel - 1) + 1 + output_padding, or output_size. "
         "fuse_activation is applied to the result.")
      .Constraint("C1", "Input must have rank " + rank)
      .Constraint("C2", "Filter must have rank " + rank)
      .Constraint("C3", "strides and dilations must be " + many + " positive numbers, paddings " +
                            many + " or " + twice + " numbers >= 0")
      .Constraint("C4", "Filter.shape[0] must be Input's channels, and groups divide it")
      .Constraint("C5", "output_size and output_padding must be empty or " + many + " numbers")
      .Constraint("C6",
                  "output_size must lie in [size, size + stride), output_padding in [0, stride)")
      .Constraint("C7", "Input, Filter and Output must not be empty along an axis of the kernel")
      .Constraint("C8", "all inputs must have one dtype")
      .Constraint("C9", "Bias must have shape [M]")
      .Input("Input", volumes ? "volumes [N, C, D, H, W], or [N, D, H, W, C] for NHWC, NDHWC"
                              : "images [N, C, H, W], or [N, H, W, C] for NHWC")
      .Input("Filter", "filters [C, M / groups, kernel's axes] in either layout")
      .OptionalInput("Bias", "[M], added to every output channel")
      .Output("Output", "in Input's layout with M channels")
      .Attr<Ints>("strides", Ints(n, 1), "steps of the window along the axes")
      .Attr<Ints>("paddings", Ints(n, 0),
                  "amounts cropped from Output: one number for each axis, or two: {top, bottom, "
                  "left, right}")
      .Attr<std::string>("padding_algorithm", "EXPLICIT",
                         "EXPLICIT: uses paddings; SAME, VALID: as in conv2d, applied to Input")
      .OneOf({"EXPLICIT", "SAME", "VALID"})
      .Attr<Ints>("dilations", Ints(n, 1), "distance of kernel elements")
      .Attr<int32_t>("groups", 1, "number of groups of channels")
      .Attr<Ints>("output_size", {}, "size of Output along each axis")
      .Attr<Ints>("output_padding", {}, "extra size of Output along each axis")
      .Attr<std::string>("data_format", "NCHW", "layout of Input and Output: NCHW or NHWC")
      .OneOf(volumes ? std::vector<std::string>{"NCHW", "NHWC", "AnyLayout", "NCDHW", "NDHWC"}
                     : std::vector<std::string>{"NCHW", "NHWC", "AnyLayout"})
      .Attr<bool>("is_test", false, "accepted, no effect")
      .Apply(DeclareFusedActivation)
      .ImageLayout("data_format", {"Input", "Output"})
      .NoLod()
      .Rows(EachBatchRow, kEachBatchRow)
      .Tables({"Filter", "Bias"})
      .MultiplyAdds({"Input", "Filter"}, TransposedMultiplyAdds)
      .Infer(InferConvTranspose)
      .Gradient(ConvTransposeGradient)
      .Reference(ConvTransposeReference<float>, ConvTransposeReference<double>)
      .Fast(ConvTransposeFast);
  ops.Add(std::move(def));
}

void Register(OpRegistry& ops) {
  Add(ops, "conv2d_transpose");
  Add(ops, "depthwise_conv2d_transpose");
  Add(ops, "conv3d_transpose");
}

}  // namespace coracle::conv2d_transpose_op
