#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/kernel/half_kernel.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/conv/conv.h>
#include <coracle/operators/conv/conv_half.h>
#include <coracle/operators/conv/conv_rules.h>
#include <coracle/operators/conv/conv_sums.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <utility>

namespace coracle::conv2d_op {

// --- shape rule ---

// `wide` may be float32 with a 16-bit Input.
void RequireDTypes(const InferContext& ctx, std::initializer_list<std::string_view> wide) {
  const bool half = IsHalf(ctx.InputDType("Input"));
  for (const char* slot : {"Filter", "Bias", "ResidualData", "Output@GRAD"}) {
    if (!ctx.HasInput(slot)) continue;
    const bool may_be_wide = half && std::find(wide.begin(), wide.end(), slot) != wide.end();
    if (may_be_wide && ctx.InputDType(slot) == DType::kFloat32) continue;
    RequireSameDType(ctx, "C8", slot, "Input");
  }
}

ConvShapes CheckConv(const InferContext& ctx) {
  const ConvShapes shapes = CheckConvShapes(ctx);
  if (ctx.HasInput("Output@GRAD"))
    RequireDTypes(ctx, {"Filter"});
  else
    RequireDTypes(ctx, {"Filter", "Bias"});
  return shapes;
}

void RequireBias(const InferContext& ctx, int64_t out_channels) {
  if (!ctx.HasInput("Bias")) return;
  const Shape& bias = ctx.InputShape("Bias");
  ctx.Require("C9", bias.rank() == 1 && InferContext::Matches(bias[0], out_channels), "Bias", bias,
              "M", out_channels);
}

// The output shape: the residual broadcast with the sums. Dims of 1 are broadcast, since the pass
// that turns an elementwise_add into ResidualData cannot exclude it when dims are unknown.
Shape WithResidual(const InferContext& ctx, const Shape& sums) {
  if (!ctx.HasInput("ResidualData")) return sums;
  const Shape& residual = ctx.InputShape("ResidualData");
  bool fits = residual.rank() == sums.rank();
  Shape out = sums;
  for (int i = 0; fits && i < sums.rank(); ++i) {
    const int64_t a = sums[i], b = residual[i];
    fits = a == 1 || b == 1 || InferContext::Matches(a, b);
    out[i] = a == 1 ? b : b == 1 ? a : std::max(a, b);
  }
  ctx.Require("C10", fits, residual, sums);
  return out;
}

void InferConv(InferContext& ctx) {
  const ConvShapes shapes = CheckConv(ctx);
  RequireBias(ctx, shapes.out_channels);
  ctx.SetOutput("Output", ctx.InputDType("Input"), WithResidual(ctx, shapes.output));
}

void InferConvGrad(InferContext& ctx) {
  const ConvShapes shapes = CheckConv(ctx);
  RequireBias(ctx, shapes.out_channels);
  ctx.Require("C11", shapes.output.CompatibleWith(ctx.InputShape("Output@GRAD")),
              ctx.InputShape("Output@GRAD"), shapes.output);
  ctx.SetOutput("Input@GRAD", ctx.Input("Input"));
  ctx.SetOutput("Filter@GRAD", ctx.Input("Filter"));
  ctx.SetOutput("Bias@GRAD", ctx.InputDType("Input"), {shapes.out_channels});
}

// --- reference kernels ---

// An output position of one channel.
struct Place {
  int64_t z, y, x;
};

// Calls f(input offset, filter offset) for every product of the output (n, m, at).
template <class F>
void ForWindow(const ConvGeometry& g, int64_t n, int64_t m, const Place& at, F&& f) {
  const ImageStrides s = g.InStrides();
  const int64_t channels = g.in_channels / g.groups;
  const int64_t first = m / (g.out_channels / g.groups) * channels;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t l = 0; l < g.d.kernel; ++l) {
      const int64_t slice = g.d.Start(at.z) + l * g.d.dilation;
      if (slice < 0 || slice >= g.d.in) continue;
      for (int64_t i = 0; i < g.h.kernel; ++i) {
        const int64_t row = g.h.Start(at.y) + i * g.h.dilation;
        if (row < 0 || row >= g.h.in) continue;
        for (int64_t j = 0; j < g.w.kernel; ++j) {
          const int64_t column = g.w.Start(at.x) + j * g.w.dilation;
          if (column < 0 || column >= g.w.in) continue;
          f(n * s.n + (first + c) * s.c + slice * s.d + row * s.h + column * s.w,
            (((m * channels + c) * g.d.kernel + l) * g.h.kernel + i) * g.w.kernel + j);
        }
      }
    }
  }
}

// Calls f(place, output offset) for every position of one channel of the output.
template <class F>
void ForPlane(const ConvGeometry& g, int64_t n, int64_t m, F&& f) {
  const ImageStrides s = g.OutStrides();
  for (int64_t z = 0; z < g.d.out; ++z) {
    for (int64_t y = 0; y < g.h.out; ++y) {
      for (int64_t x = 0; x < g.w.out; ++x)
        f(Place{z, y, x}, n * s.n + m * s.c + z * s.d + y * s.h + x * s.w);
    }
  }
}

// The operands of a prepared convolution, and the broadcast of its sums to Output's shape.
struct Operands : ConvForwardArgs {
  ConvGeometry g;
  // Set if the residual and the sums differ in shape. Then stretched_to is the op's Output,
  // `output` is scratch memory for the sums, addend is the residual, and `residual` is absent.
  bool stretched = false;
  TensorArg stretched_to = {};
  TensorArg addend = {};

  // With `halves`, 16-bit images are not converted to float32 (HalfInput).
  explicit Operands(const PrepareContext& ctx, bool halves = false) {
    input = halves ? HalfInput(ctx, "Input") : ctx.Input("Input");
    filter = ctx.Input("Filter");
    bias = ctx.Input("Bias");
    residual = halves ? HalfInput(ctx, "ResidualData") : ctx.Input("ResidualData");
    output = halves ? HalfOutput(ctx, "Output") : ctx.Output("Output");
    activation = ConvActivation(ctx);
    g = ConvGeometryOf(ctx, input, filter);
    if (!residual) return;
    const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"), g.axes);
    const Shape sums = SumsShape(ctx, layout);
    stretched = sums != residual.shape;
    if (!stretched) return;
    stretched_to = output;
    addend = std::exchange(residual, {});
    output = ctx.Scratch(output.dtype, sums);
  }

  Shape SumsShape(const PrepareContext& ctx, const ImageLayout& layout) const {
    const WindowSpec spec = ConvWindow(ctx);
    Shape sums = input.shape;
    sums[layout.channel()] = g.out_channels;
    for (int i = 0; i < g.axes; ++i) {
      const int axis = layout.axis(i);
      sums[axis] = ResolveAxis(spec, i, input.shape[axis], filter.shape[2 + i]).out;
    }
    return sums;
  }

  // Runs after the convolution: adds the broadcast residual and applies the activation.
  template <class T>
  Kernel Stretch(Kernel sums, const ConvActivation& last) const {
    if (!sums || !stretched) return sums;
    const BroadcastNest nest = MakeBroadcastNest(output.shape, addend.shape, 0);
    return [=, from = output, other = addend, to = stretched_to](Workspace& ws) {
      sums(ws);
      T* out = ws.Data<T>(to);
      BroadcastLoop(nest, ws.Data<const T>(from), ws.Data<const T>(other), out,
                    [](T a, T b) { return a + b; });
      last.Apply(out, to.numel);
    };
  }
};

template <class T>
Kernel SumsReference(const PrepareContext& ctx, const ConvForwardArgs& args,
                     const ConvGeometry& g) {
  const TensorArg transposed =
      g.channels_last ? ctx.Scratch(args.filter.dtype, {args.filter.numel}) : TensorArg();
  return [=](Workspace& ws) {
    if (args.output.numel == 0) return;
    ConvArrays<T> a;
    a.in = ws.Data<const T>(args.input);
    a.filter = ws.Data<const T>(args.filter);
    a.bias = args.bias ? ws.Data<const T>(args.bias) : nullptr;
    a.residual = args.residual ? ws.Data<const T>(args.residual) : nullptr;
    a.out = ws.Data<T>(args.output);
    if (transposed) {
      TransposeFilter(g, a.filter, ws.Data<T>(transposed));
      a.filter = ws.Data<const T>(transposed);
    }
    const int64_t pieces = g.channels_last ? g.d.out * g.h.out : g.out_channels;
    ParallelFor(g.batch * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        (g.channels_last ? ConvRowLast<T> : ConvPlaneFirst<T>)(g, a, i / pieces, i % pieces);
    });
    args.activation.Apply(a.out, args.output.numel);
  };
}

template <class T>
KernelOf<T> ConvReference(const PrepareContext& ctx) {
  Operands operands(ctx);
  const ConvActivation last = operands.activation;
  if (operands.stretched) operands.activation = {};
  return {operands.Stretch<T>(SumsReference<T>(ctx, operands, operands.g), last)};
}

// dInput: each task scatters into one image. dFilter: each task gathers one filter.
template <class T>
KernelOf<T> ConvGradReference(const PrepareContext& ctx) {
  const TensorArg input = ctx.Input("Input"), filter = ctx.Input("Filter");
  const TensorArg dout = ctx.Input("Output@GRAD"), dinput = ctx.Output("Input@GRAD");
  const TensorArg dfilter = ctx.Output("Filter@GRAD"), dbias = ctx.Output("Bias@GRAD");
  const ConvGeometry g = ConvGeometryOf(ctx, input, filter);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(input);
    const T* w = ws.Data<const T>(filter);
    const T* go = ws.Data<const T>(dout);
    if (dinput) {
      T* di = ws.Data<T>(dinput);
      ParallelFor(g.batch, 1, [&](int64_t begin, int64_t end) {
        const int64_t image = g.InStrides().n;
        std::fill(di + begin * image, di + end * image, T(0));
        for (int64_t n = begin; n < end; ++n) {
          for (int64_t m = 0; m < g.out_channels; ++m) {
            ForPlane(g, n, m, [&](const Place& at, int64_t o) {
              ForWindow(g, n, m, at, [&](int64_t i, int64_t k) { di[i] += go[o] * w[k]; });
            });
          }
        }
      });
    }
    if (dfilter) {
      T* dw = ws.Data<T>(dfilter);
      ParallelFor(g.out_channels, 1, [&](int64_t begin, int64_t end) {
        const int64_t size = g.out_channels > 0 ? dfilter.numel / g.out_channels : 0;
        std::fill(dw + begin * size, dw + end * size, T(0));
        for (int64_t m = begin; m < end; ++m) {
          for (int64_t n = 0; n < g.batch; ++n) {
            ForPlane(g, n, m, [&](const Place& at, int64_t o) {
              ForWindow(g, n, m, at, [&](int64_t i, int64_t k) { dw[k] += go[o] * in[i]; });
            });
          }
        }
      });
    }
    if (dbias) ConvBiasGrad<T>(g, go, ws.Data<T>(dbias));
  };
}

// --- fast kernels ---

// Empty unless the images have 16 bits and all operands have the shape of the sums.
Kernel ConvFastOfHalves(const PrepareContext& ctx) {
  if (!HalfInput(ctx, "Input") || !HalfOutput(ctx, "Output")) return {};
  const TensorArg residual = HalfInput(ctx, "ResidualData");
  if (static_cast<bool>(residual) != ctx.HasInput("ResidualData")) return {};
  const Operands operands(ctx, true);
  return operands.stretched ? Kernel() : ConvForwardOfHalves(ctx, operands.g, operands);
}

Kernel ConvFast(const PrepareContext& ctx) {
  if (Kernel by_parts = ConvFastOfHalves(ctx)) return by_parts;
  Operands operands(ctx);
  if (operands.stretched && operands.input.dtype != DType::kFloat32) return {};
  const ConvActivation last = operands.activation;
  if (operands.stretched) operands.activation = {};
  return operands.Stretch<float>(ConvForwardFast(ctx, operands.g, operands), last);
}

Kernel ConvGradFastOfHalves(const PrepareContext& ctx) {
  ConvBackwardArgs args;
  args.input = HalfInput(ctx, "Input");
  args.dout = HalfInput(ctx, "Output@GRAD");
  args.dinput = HalfOutput(ctx, "Input@GRAD");
  if (!args.input || !args.dout) return {};
  if (!args.dinput && ctx.Output("Input@GRAD")) return {};
  args.filter = ctx.Input("Filter");
  args.dfilter = ctx.Output("Filter@GRAD");
  args.dbias = ctx.Output("Bias@GRAD");
  return ConvBackwardOfHalves(ctx, ConvGeometryOf(ctx, args.input, args.filter), args);
}

Kernel ConvGradFast(const PrepareContext& ctx) {
  if (Kernel by_parts = ConvGradFastOfHalves(ctx)) return by_parts;
  const ConvBackwardArgs args = {ctx.Input("Input"),        ctx.Input("Filter"),
                                 ctx.Input("Output@GRAD"),  ctx.Output("Input@GRAD"),
                                 ctx.Output("Filter@GRAD"), ctx.Output("Bias@GRAD")};
  return ConvBackwardFast(ctx, ConvGeometryOf(ctx, args.input, args.filter), args);
}

// --- gradient rules ---

AttrList ConvAttrs(const GradientContext& g) {
  return g.ForwardAttrs(
      {"strides", "paddings", "dilations", "padding_algorithm", "groups", "data_format"});
}

void ConvGradient(GradientContext& g) {
  const std::string dout =
      GradOfSums(g, g.ForwardInputs({"Input", "Filter", "Bias", "ResidualData"}), ConvAttrs(g))
          .name();
  SlotList inputs = {{"Input", {g.Input("Input")}}, {"Filter", {g.Input("Filter")}}};
  SlotList outputs = {{"Input@GRAD", {g.InputGrad("Input")}},
                      {"Filter@GRAD", {g.InputGrad("Filter")}}};
  if (g.HasInput("Bias")) {
    inputs.push_back({"Bias", {g.Input("Bias")}});
    outputs.push_back({"Bias@GRAD", {g.InputGrad("Bias")}});
  }
  inputs.push_back({"Output@GRAD", {dout}});
  g.Append(g.op().type() + "_grad", inputs, outputs, ConvAttrs(g));
  if (g.HasInput("ResidualData") && g.NeedsInputGrad("ResidualData")) {
    g.Append("elementwise_add_grad",
             {{"X", {g.Output("Output")}}, {"Y", {g.Input("ResidualData")}}, {"Out@GRAD", {dout}}},
             {{"Y@GRAD", {g.InputGrad("ResidualData")}}});
  }
}

// conv2d_grad is bilinear in (Input, Output@GRAD) and (Filter, Output@GRAD). With U, V, W the
// gradients of Input@GRAD, Filter@GRAD, Bias@GRAD:
//   Output@GRAD' = conv(U, Filter) + conv(Input, V) + W
//   Input'  = Input@GRAD of conv2d_grad with filter V
//   Filter' = Filter@GRAD of conv2d_grad with input U
void ConvGradGradient(GradientContext& g) {
  const std::string grad_type = g.op().type();
  const std::string type = grad_type.substr(0, grad_type.size() - 5);
  const std::string input = g.Input("Input"), filter = g.Input("Filter");
  const AttrList attrs = ConvAttrs(g);
  const auto grad_of = [&](const char* slot, const std::string& in, const std::string& w) {
    return g.Make(grad_type,
                  {{"Input", {in}}, {"Filter", {w}}, {"Output@GRAD", {g.Input("Output@GRAD")}}},
                  attrs, slot);
  };
  // W is the bias of the first convolution.
  std::string bias = g.HasOutputGrad("Bias@GRAD") ? g.OutputGrad("Bias@GRAD") : "";
  std::vector<Variable> terms;
  const auto add_term = [&](const std::string& in, const std::string& w) {
    SlotList inputs = {{"Input", {in}}, {"Filter", {w}}};
    if (!bias.empty()) inputs.push_back({"Bias", {std::exchange(bias, "")}});
    terms.push_back(g.Make(type, std::move(inputs), attrs, "Output"));
  };
  if (g.HasOutputGrad("Input@GRAD")) {
    const std::string u = g.OutputGrad("Input@GRAD");
    add_term(u, filter);
    g.Set("Filter", grad_of("Filter@GRAD", u, filter));
  }
  if (g.HasOutputGrad("Filter@GRAD")) {
    const std::string v = g.OutputGrad("Filter@GRAD");
    add_term(input, v);
    g.Set("Input", grad_of("Input@GRAD", input, v));
  }
  if (!bias.empty()) add_term(input, ZerosLike(g.In("Filter")).name());
  g.Set("Output@GRAD", terms.size() > 1 ? AddAll(terms) : terms.front());
}

// --- registration ---

// Wording of the declarations for images and for volumes.
struct Words {
  int axes;
  std::string two, two_or_four, rank, images, last, channels_last;
};
Words WordsOf(const std::string& type) {
  if (AxesOf(type) == 2)
    return {2, "two", "two or four", "4", "images [N, C, H, W]", "[N, H, W, C]", "NHWC"};
  return {3, "three", "three or six", "5", "volumes [N, C, D, H, W]", "[N, D, H, W, C]", "NDHWC"};
}

void DeclareConvAttrs(OpDef& def, const Words& words) {
  using Ints = std::vector<int32_t>;
  const auto n = static_cast<size_t>(words.axes);
  const std::string first = words.axes == 2 ? "NCHW" : "NCDHW";
  def.Attr<Ints>("strides", Ints(n, 1), "steps of the window along the axes")
      .Attr<Ints>("paddings", Ints(n, 0),
                  "zeros around: one number for each axis, or two, before and after: {top, bottom, "
                  "left, right}")
      .Attr<std::string>("padding_algorithm", "EXPLICIT",
                         "EXPLICIT: uses paddings; SAME: output size ceil(in / stride), dilation "
                         "1; VALID: no padding")
      .OneOf({"EXPLICIT", "SAME", "VALID"})
      .Attr<Ints>("dilations", Ints(n, 1), "distance of kernel elements")
      .Attr<int32_t>("groups", 1, "number of groups of channels and filters")
      .Attr<std::string>(
          "data_format", first,
          "layout of Input and Output: " + first + " (AnyLayout too) or " + words.channels_last)
      .OneOf({first, words.channels_last, "AnyLayout"})
      .Attr<bool>("is_test", false, "accepted, no effect");
}

OpDef ForwardDef(const std::string& type, const std::string& what) {
  const Words words = WordsOf(type);
  return OpDef(type)
      .Doc(what +
           " Output[n, m, y, x] = act(Bias[m] + ResidualData[n, m, y, x] + sum over c, i, j of "
           "Input[n, c, y * stride + i * dilation - pad, ...] * Filter[m, c, i, j]) "
           "(cross-correlation, zeros outside), c over the channels of m's group, act the function "
           "of fuse_activation. Output size: (in + pad_before + pad_after - (dilation * (kernel - "
           "1) + 1)) / stride + 1.")
      .Constraint("C1", "Input must have rank " + words.rank)
      .Constraint("C2", "Filter must have rank " + words.rank)
      .Constraint("C3", "strides must be " + words.two + " positive numbers")
      .Constraint("C4", "paddings must be " + words.two_or_four + " numbers >= 0")
      .Constraint("C5", "dilations must be " + words.two + " positive numbers")
      .Constraint("C6",
                  "groups must be positive and divide the number of filters, and Filter.shape[1] * "
                  "groups must be the channels of Input")
      .Constraint("C7", "the kernel must fit into the padded Input")
      .Constraint(
          "C8",
          "all inputs must have one dtype; Filter and Bias may be float32 with a 16-bit Input, "
          "except that a gradient needs Bias in Input's dtype")
      .Constraint("C9", "Bias must have shape [M]")
      .Constraint("C10",
                  "ResidualData must have the shape of the sums; in dims where one of them has "
                  "size 1, it is broadcast")
      .Input("Input", words.images + ", or " + words.last + " for " + words.channels_last)
      .Input("Filter", "filters [M, C / groups, kernel's axes] in either layout")
      .OptionalInput("Bias", "[M], added to every output channel")
      .OptionalInput("ResidualData", "added to the sums; of their shape, dims of 1 are broadcast")
      .Output("Output", "in Input's layout with M channels")
      .Apply(DeclareConvAttrs, words)
      .Apply(DeclareFusedActivation)
      .ImageLayout("data_format", {"Input", "ResidualData", "Output"})
      .Inplace("ResidualData", "Output")
      .Rows(EachBatchRow, kEachBatchRow)
      .Tables({"Filter", "Bias"})
      .MultiplyAdds({"Input", "Filter"}, ConvMultiplyAdds)
      .Infer(InferConv)
      .Gradient(ConvGradient)
      .Reference(ConvReference<float>, ConvReference<double>)
      .Fast(ConvFast);
}

OpDef GradDef(const std::string& type) {
  return OpDef(type + "_grad")
      .Doc("Gradients of " + type + ".")
      .ConstraintsOf(type, {"C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9"})
      .Constraint("C11", "Output@GRAD must have Output's shape")
      .Input("Input", "Input of the forward op")
      .Input("Filter", "Filter of the forward op")
      .OptionalInput("Bias", "Bias of the forward op; only its shape is used")
      .Input("Output@GRAD", "gradient of Output")
      .OptionalOutput("Input@GRAD", "gradient of Input")
      .OptionalOutput("Filter@GRAD", "gradient of Filter")
      .OptionalOutput("Bias@GRAD", "gradient of Bias")
      .Apply(DeclareConvAttrs, WordsOf(type))
      .ImageLayout("data_format", {"Input", "Output@GRAD", "Input@GRAD"})
      .NoGradientTo({"Bias"})
      .Infer(InferConvGrad)
      .Gradient(ConvGradGradient)
      .Reference(ConvGradReference<float>, ConvGradReference<double>)
      .Fast(ConvGradFast);
}

void Register(OpRegistry& ops) {
  ops.Add(ForwardDef(
              "conv2d",
              "Two-dimensional convolution. In float32, 3 x 3 kernels of stride 1 may be computed "
              "with fewer products (Winograd's F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3)), to about 5e-6 "
              "of the largest result. An input that is nan, infinite or near the largest float "
              "then gives nan in all results, and in gradients of Input, of its tile of 2 x 2 or 4 "
              "x 4 pixels and of the adjacent tiles, and in all taps of the kernels in "
              "Filter@GRAD. The reference kernels give nan only where the formula does.")
              .ComputesIn(OpPrecision::kLow)
              .EachImage());
  ops.Add(GradDef("conv2d"));
  ops.Add(ForwardDef("depthwise_conv2d",
                     "conv2d for groups = channels of Input: each channel has its own filters.")
              .EachImage());
  ops.Add(GradDef("depthwise_conv2d"));
  ops.Add(ForwardDef(
      "conv3d",
      "Three-dimensional convolution; the formula has a depth index in addition to y and x."));
  ops.Add(GradDef("conv3d"));
}

}  // namespace coracle::conv2d_op
