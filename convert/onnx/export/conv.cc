// Convolution ops.
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/export/activation.h>
#include <coracle/convert/onnx/export/images.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/quantize.h>
#include <coracle/convert/onnx/export/rows.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace coracle::onnx {
namespace {

// Attributes of Conv and ConvTranspose.
struct Window {
  size_t axes;
  Ints strides, pads, dilations;
};

Window WindowOf(OpContext& op) {
  const auto axes = static_cast<size_t>(op.Rank("Input")) - 2;
  const auto algorithm = op.Attr<std::string>("padding_algorithm");
  Window w{axes, op.IntsAttr("strides"), PadsOf(op.IntsAttr("paddings"), axes),
           op.IntsAttr("dilations")};
  if (algorithm != "EXPLICIT") w.pads.assign(2 * axes, 0);
  if (algorithm == "SAME") w.dilations.assign(axes, 1);
  return w;
}

NodeAttrs AttrsOf(OpContext& op, const Window& w) {
  NodeAttrs attrs = {
      {"strides", w.strides}, {"dilations", w.dilations}, {"group", op.Attr<int32_t>("groups")}};
  const Shape& filter = op.InShape("Filter");
  if (filter.IsKnown()) attrs.emplace_back("kernel_shape", Ints(filter.begin() + 2, filter.end()));
  return attrs;
}

// A filter may be float32 with 16-bit images.
Value FilterOf(OpContext& op) {
  return op.Cast(op.In("Filter"), op.InType("Filter"), op.InType("Input"));
}

void Finish(OpContext& op, Value sums, bool channels_last) {
  sums = FromChannelsFirst(op, sums, op.Rank("Input"), channels_last);
  op.Out("Output", FusedActivation(op, sums, op.InType("Input")));
}

// The centred integers of an image. A 1-D convolution adds a dim of 1 to its signal (Unsqueeze).
std::optional<Centred> ImageOf(OpContext& op, const Value& value) {
  const Values images = op.exporter().graph().InputsOf(value, "Unsqueeze");
  std::optional<Centred> x = CentredOf(op, images.empty() ? value : images[0]);
  if (x && !images.empty()) x->integers = op.Node("Unsqueeze", {x->integers, images[1]});
  return x;
}

// int32 holds the sum of this many products of 8-bit integers minus their zero points.
constexpr int64_t kMostTerms = INT32_MAX / (255 * 255);

// A float64 convolution of integers, whose sums are exact: ConvInteger, unless the operands are
// others. Programs of quantized models have them; readers of ONNX lack Conv of float64.
Value ConvOfIntegers(OpContext& op, const Value& input, const NodeAttrs& attrs) {
  if (op.InType("Input") != DType::kFloat64 || op.Has("Bias")) return "";
  const Shape& filter = op.InShape("Filter");
  if (!filter.IsKnown() || filter.numel() > filter[0] * kMostTerms) return "";
  const auto x = ImageOf(op, input), w = ImageOf(op, op.In("Filter"));
  if (!x || !w) return "";
  const Value x_zero = x->zero_point.empty() ? "" : op.AsScalar(x->zero_point);
  const Value w_zero = w->zero_point.empty() ? "" : op.Reshape(w->zero_point, {-1});
  const Value sums = op.Node("ConvInteger", {x->integers, w->integers, x_zero, w_zero}, attrs);
  return op.Node("Cast", {sums}, {{"to", ToDataType(DType::kFloat64)}});
}

}  // namespace

NodeAttrs ConvAttrsOf(OpContext& op) {
  const Window w = WindowOf(op);
  NodeAttrs attrs = AttrsOf(op, w);
  if (op.Attr<std::string>("padding_algorithm") == "SAME")
    attrs.emplace_back("auto_pad", "SAME_UPPER");
  else
    attrs.emplace_back("pads", w.pads);
  return attrs;
}

namespace {

// The convolution plus the residual data, channels first.
Value ConvSums(OpContext& op) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_format"));
  const NodeAttrs attrs = ConvAttrsOf(op);
  const Value x = ToChannelsFirst(op, op.In("Input"), op.Rank("Input"), last);
  Value sums = ConvOfIntegers(op, x, attrs);
  const DType dtype = op.InType("Input");
  const Value bias = op.Has("Bias") ? op.Cast(op.In("Bias"), op.InType("Bias"), dtype) : "";
  if (sums.empty()) sums = op.Node("Conv", {x, FilterOf(op), bias}, attrs);
  if (op.Has("ResidualData")) {
    const Value more = ToChannelsFirst(op, op.In("ResidualData"), op.Rank("ResidualData"), last);
    sums = op.Node("Add", {sums, more});
  }
  return sums;
}
void Conv(OpContext& op) {
  Finish(op, ConvSums(op), ChannelsLast(op.Attr<std::string>("data_format")));
}

void ConvFusion(OpContext& op) {
  op.Ignore("AlgoCache");
  const bool last = ChannelsLast(op.Attr<std::string>("data_format"));
  const auto type = op.Attr<std::string>("activation");
  op.Require(op.Attr<std::string>("fuse_activation").empty(), "fuse_activation has no counterpart");
  Value out = FromChannelsFirst(op, ConvSums(op), 4, last);
  if (type != "identity") out = Activate(op, type, {}, out, op.InType("Input"));
  op.Out("Output", out);
  const Ints channels = op.IntsAttr("split_channels");
  if (channels.empty()) return;
  const Values parts =
      op.Nodes("Split", {out, op.IntList(channels)}, channels.size(), {{"axis", last ? 3 : 1}});
  for (size_t i = 0; i < parts.size(); ++i) op.Out("Outputs", parts[i], i);
}

// The pads that give ceil(in / stride) windows of Input, as in a convolution.
void PadSame(OpContext& op, const Shape& in, Window* w) {
  const Shape& filter = op.InShape("Filter");
  for (size_t i = 0; i < w->axes; ++i) {
    const int axis = static_cast<int>(i) + 2;
    const int64_t stride = w->strides[i], kernel = filter[axis];
    op.Require(kernel > 0 && (in[axis] > 0 || stride == 1),
               "padding_algorithm SAME of an unknown size has no counterpart");
    const int64_t out = stride == 1 ? in[axis] : (in[axis] + stride - 1) / stride;
    const int64_t all =
        stride == 1 ? kernel - 1 : std::max<int64_t>(0, (out - 1) * stride + kernel - in[axis]);
    w->pads[i] = all / 2;
    w->pads[w->axes + i] = all - all / 2;
  }
}

// The difference between output_size and the size given by the window.
Ints OutputPadding(OpContext& op, const Shape& in, const Window& w) {
  Ints padding = op.IntsAttr("output_padding");
  const Ints size = op.IntsAttr("output_size");
  if (size.empty()) return padding.empty() ? Ints(w.axes, 0) : padding;
  padding.assign(w.axes, 0);
  const Shape& filter = op.InShape("Filter");
  for (size_t i = 0; i < w.axes; ++i) {
    const int axis = static_cast<int>(i) + 2;
    op.Require(
        in[axis] > 0 && filter[axis] > 0,
        fmt::format("output_size of an Input whose size is unknown has no counterpart: Input "
                    "has the shape {}; coracle set-shape gives it",
                    in.ToString()));
    const int64_t least = (in[axis] - 1) * w.strides[i] - w.pads[i] - w.pads[w.axes + i] +
                          w.dilations[i] * (filter[axis] - 1) + 1;
    padding[i] = size[i] - least;
  }
  return padding;
}

void ConvTranspose(OpContext& op) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_format"));
  const Shape in = ChannelsFirst(op.InShape("Input"), last);
  Window w = WindowOf(op);
  if (op.Attr<std::string>("padding_algorithm") == "SAME") PadSame(op, in, &w);
  NodeAttrs attrs = AttrsOf(op, w);
  attrs.emplace_back("pads", w.pads);
  attrs.emplace_back("output_padding", OutputPadding(op, in, w));
  const Value x = ToChannelsFirst(op, op.In("Input"), op.Rank("Input"), last);
  Finish(op, op.Node("ConvTranspose", {x, FilterOf(op), op.In("Bias")}, attrs), last);
}

constexpr ExportRow kRows[] = {
    {"conv2d", Conv, "Conv; ConvInteger or QLinearConv of integers"},
    {"conv2d_fusion", ConvFusion, "Conv, Add, and the activation"},
    {"conv2d_transpose", ConvTranspose, "ConvTranspose"},
    {"conv3d", Conv, "Conv; ConvInteger or QLinearConv of integers"},
    {"conv3d_transpose", ConvTranspose, "ConvTranspose"},
    {"depthwise_conv2d", Conv, "Conv"},
    {"depthwise_conv2d_transpose", ConvTranspose, "ConvTranspose"},
};

}  // namespace

ExportRows ConvRows() { return kRows; }

}  // namespace coracle::onnx
