// Layers of images: convolutions, pooling, local response normalisation.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace coracle::caffe {
namespace {

using proto::caffe::ConvolutionParameter;
using proto::caffe::LRNParameter;
using proto::caffe::PoolingParameter;

using Two = std::array<int64_t, 2>;  // height and width

std::vector<int64_t> List(const Two& two) { return {two[0], two[1]}; }

void RequirePositive(const Layer& layer, const Two& values, const char* param, const char* name) {
  for (const int64_t value : values) {
    if (value < 1 || value > std::numeric_limits<int32_t>::max())
      layer.Fail({param}, fmt::format("{} must be positive, got {}", name, value));
  }
}

// Numbers given once, once for each axis, or as NAME_h and NAME_w.
struct Convolution {
  Two kernel, stride, pad, dilation;
  int64_t group = 1, outputs = 0;
};

Two SpatialOf(const Layer& layer, const google::protobuf::RepeatedField<uint32_t>& values,
              bool has_h, bool has_w, int64_t h, int64_t w, int64_t otherwise, const char* name) {
  if (has_h || has_w) {
    if (values.size() > 0) {
      layer.Fail({"convolution_param"},
                 fmt::format("give either {0} or {0}_h and {0}_w, not both", name));
    }
    return {has_h ? h : otherwise, has_w ? w : otherwise};
  }
  if (values.empty()) return {otherwise, otherwise};
  if (values.size() > 2) {
    layer.Fail({"convolution_param", name},
               fmt::format("only images with two axes are converted, got {} numbers for {}",
                           values.size(), name));
  }
  return {values.Get(0), values.Get(values.size() - 1)};
}

Convolution ReadConvolution(const Layer& layer) {
  const ConvolutionParameter& p = layer.def.convolution_param();
  Convolution c;
  if (p.axis() != 1) layer.Fail({"convolution_param", "axis"}, "only the axis 1 is converted");
  c.kernel = SpatialOf(layer, p.kernel_size(), p.has_kernel_h(), p.has_kernel_w(), p.kernel_h(),
                       p.kernel_w(), 0, "kernel_size");
  c.stride = SpatialOf(layer, p.stride(), p.has_stride_h(), p.has_stride_w(), p.stride_h(),
                       p.stride_w(), 1, "stride");
  c.pad = SpatialOf(layer, p.pad(), p.has_pad_h(), p.has_pad_w(), p.pad_h(), p.pad_w(), 0, "pad");
  c.dilation = SpatialOf(layer, p.dilation(), p.has_hole_h(), p.has_hole_w(), p.hole_h(),
                         p.hole_w(), p.hole(), "dilation");
  RequirePositive(layer, c.kernel, "convolution_param", "kernel_size");
  RequirePositive(layer, c.stride, "convolution_param", "stride");
  RequirePositive(layer, c.dilation, "convolution_param", "dilation");
  for (const int64_t pad : c.pad)
    if (pad > std::numeric_limits<int32_t>::max())
      layer.Fail({"convolution_param"}, fmt::format("pad must be less than 2^31, got {}", pad));
  c.group = p.group();
  c.outputs = p.num_output();
  const auto small = [](int64_t value) {
    return value >= 1 && value <= std::numeric_limits<int32_t>::max();
  };
  if (!small(c.outputs))
    layer.Fail({"convolution_param"},
               fmt::format("num_output must be positive, got {}", c.outputs));
  if (!small(c.group))
    layer.Fail({"convolution_param"}, fmt::format("group must be positive, got {}", c.group));
  return c;
}

void RequireGroups(const Layer& layer, const Convolution& c, int64_t channels) {
  if (channels % c.group == 0 && c.outputs % c.group == 0) return;
  layer.Fail({"convolution_param", "group"},
             fmt::format("group {} must divide the {} channels of the bottom and the {} outputs",
                         c.group, channels, c.outputs));
}

Entry ConvolutionFields(const Convolution& c, const char* kind, const std::string& in) {
  Entry entry(kind);
  entry.Text("input", in).Int("num_filters", c.outputs);
  entry.Field("filter_size", SizeText(List(c.kernel)));
  if (c.stride != Two{1, 1}) entry.Field("stride", SizeText(List(c.stride)));
  if (c.pad != Two{0, 0}) entry.Field("padding", SizeText(List(c.pad)));
  if (c.dilation != Two{1, 1}) entry.Field("dilation", SizeText(List(c.dilation)));
  if (c.group != 1) entry.Int("groups", c.group);
  return entry;
}

constexpr float kRandom = std::numeric_limits<float>::quiet_NaN();

void WriteConvolutionOf(const Layer& layer, NetWriter& net, const Convolution& c) {
  const ConvolutionParameter& p = layer.def.convolution_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = ImagesIn(layer, net);
  RequireGroups(layer, c, in.dims[1]);
  Dims out = {in.dims[0], c.outputs, 0, 0};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t span = in.dims[2 + i] + 2 * c.pad[i] - (c.dilation[i] * (c.kernel[i] - 1) + 1);
    if (span < 0)
      layer.Fail(fmt::format("its kernel is larger than the images, {}", ToText(in.dims)));
    out[2 + i] = span / c.stride[i] + 1;
  }
  const Dims filter = {c.outputs, in.dims[1] / c.group, c.kernel[0], c.kernel[1]};
  Entry entry = ConvolutionFields(c, "conv2d", in.var);
  entry.Text("name", layer.def.name());
  entry.Message("param",
                net.Param(layer, {.blob = 0,
                                  .dims = filter,
                                  .var = layer.def.name() + ".w_0",
                                  .filler = p.has_weight_filler() ? &p.weight_filler() : nullptr,
                                  .model_default = kRandom}));
  if (p.bias_term()) {
    entry.Message("bias",
                  net.Param(layer, {.blob = 1,
                                    .dims = {c.outputs},
                                    .var = layer.def.name() + ".b_0",
                                    .filler = p.has_bias_filler() ? &p.bias_filler() : nullptr}));
  } else {
    entry.Bool("bias_term", false);
  }
  net.AddResult(layer, entry, out);
}

void WriteConvolution(const Layer& layer, NetWriter& net) {
  WriteConvolutionOf(layer, net, ReadConvolution(layer));
}

// One filter for each channel. Some versions of Caffe need `group`, others have none.
void WriteDepthwise(const Layer& layer, NetWriter& net) {
  Convolution c = ReadConvolution(layer);
  net.RequireBottoms(layer, 1, 1);
  const int64_t channels = ImagesIn(layer, net).dims[1];
  const bool grouped = layer.def.convolution_param().has_group();
  if (c.outputs != channels || (grouped && c.group != channels)) {
    layer.Fail({"convolution_param"},
               fmt::format("num_output, and group if it is given, must be the {} channels of its "
                           "bottom",
                           channels));
  }
  c.group = channels;
  WriteConvolutionOf(layer, net, c);
}

// The model text has no such layer: the filters become a parameter, and the bias is added.
void WriteDeconvolution(const Layer& layer, NetWriter& net) {
  const Convolution c = ReadConvolution(layer);
  const ConvolutionParameter& p = layer.def.convolution_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = ImagesIn(layer, net);
  RequireGroups(layer, c, in.dims[1]);
  Dims out = {in.dims[0], c.outputs, 0, 0};
  for (size_t i = 0; i < 2; ++i) {
    out[2 + i] =
        (in.dims[2 + i] - 1) * c.stride[i] - 2 * c.pad[i] + c.dilation[i] * (c.kernel[i] - 1) + 1;
    if (out[2 + i] < 1) layer.Fail(fmt::format("its result is empty: {}", ToText(out)));
  }
  const Dims filter = {in.dims[1], c.outputs / c.group, c.kernel[0], c.kernel[1]};
  const std::string w = layer.def.name() + ".w_0", b = layer.def.name() + ".b_0";
  const std::string weights =
      net.Parameter(layer, {.blob = 0,
                            .dims = filter,
                            .var = w,
                            .filler = p.has_weight_filler() ? &p.weight_filler() : nullptr,
                            .model_default = kRandom});
  Entry op("conv2d_transpose");
  op.Text("Input", in.var).Text("Filter", weights);
  if (p.bias_term()) {
    op.Text("Bias",
            net.Parameter(layer, {.blob = 1,
                                  .dims = {c.outputs},
                                  .var = b,
                                  .filler = p.has_bias_filler() ? &p.bias_filler() : nullptr,
                                  .constant = 0,
                                  .model_default = kRandom}));
  }
  if (c.stride != Two{1, 1}) op.Field("strides", ListText(List(c.stride)));
  if (c.pad != Two{0, 0}) op.Field("paddings", ListText(List(c.pad)));
  if (c.dilation != Two{1, 1}) op.Field("dilations", ListText(List(c.dilation)));
  if (c.group != 1) op.Int("groups", c.group);
  net.AddOp(op.Text("Output", net.Out(layer, 0, out)));
}

// --- pooling ---

// One axis of Caffe's pooling: the number of windows is rounded up; with padding, the last window
// is dropped if it begins past the image and the padding before it (pooling_layer.cpp).
struct PoolAxis {
  int64_t in, kernel, stride, pad;
  int64_t out = 0;
  bool rounded_up = false;  // the last window extends past the padded image

  int64_t padded() const { return in + 2 * pad; }
};

// `padded`: whether one of the two axes has padding.
PoolAxis MakeAxis(const Layer& layer, int64_t in, int64_t kernel, int64_t stride, int64_t pad,
                  bool padded, bool round_up) {
  PoolAxis a{in, kernel, stride, pad};
  if (pad >= kernel)
    layer.Fail({"pooling_param"},
               fmt::format("pad {} must be less than the kernel {}", pad, kernel));
  const int64_t span = a.padded() - kernel;
  if (span < 0 && (!round_up || span <= -stride)) {
    layer.Fail(
        fmt::format("its window of {} is larger than the padded image of {}", kernel, a.padded()));
  }
  const int64_t down = span < 0 ? 0 : span / stride;
  const bool rest = span < 0 || span % stride != 0;
  a.out = down + 1 + (rest && round_up && span >= 0 ? 1 : 0);
  a.rounded_up = a.out > down + 1 || span < 0;
  if (padded && (a.out - 1) * stride >= in + pad) {
    --a.out;
    a.rounded_up = false;
  }
  return a;
}

void RequireLastWindowInside(const Layer& layer, const PoolAxis& a, bool max) {
  if ((a.out - 1) * a.stride - a.pad < a.in) return;
  layer.Fail(
      fmt::format("its last window lies outside of the image (size {}, kernel {}, stride "
                  "{}): there Caffe {}; round_mode: FLOOR leaves it out",
                  a.in, a.kernel, a.stride,
                  max ? "gives -FLT_MAX" : "divides a sum of 0 by a size that is not positive"));
}

int64_t PickSize(const Layer& layer, bool has_one, int64_t one, bool has_hw, int64_t hw,
                 int64_t otherwise, const char* name) {
  if (has_one && has_hw)
    layer.Fail({"pooling_param", name}, fmt::format("{0} and {0}_h exclude each other", name));
  return has_hw ? hw : has_one ? one : otherwise;
}

void WriteGlobalPool(const Layer& layer, NetWriter& net, const Blob& in, const char* type) {
  Entry entry("pool2d");
  entry.Text("input", in.var);
  if (type != std::string("max")) entry.Text("pool_type", type);
  entry.Bool("global_pooling", true);
  net.AddResult(layer, entry, {in.dims[0], in.dims[1], 1, 1});
}

// Caffe divides an average by the size of the window clipped to the padded image, so padding
// counts, but elements beyond it do not.
void WritePool(const Layer& layer, NetWriter& net, const Blob& in,
               const std::array<PoolAxis, 2>& axes, bool max) {
  const bool up = axes[0].rounded_up || axes[1].rounded_up;
  const bool same = axes[0].rounded_up == axes[1].rounded_up;
  const bool padded = axes[0].pad > 0 || axes[1].pad > 0;
  // ceil_mode applies to both axes; it has no effect on an axis whose windows fit exactly.
  const auto exact = [](const PoolAxis& a) { return (a.padded() - a.kernel) % a.stride == 0; };
  const bool ceil = up && (same || std::all_of(axes.begin(), axes.end(), [&](const PoolAxis& a) {
                             return a.rounded_up || exact(a);
                           }));
  std::string input = in.var;
  Two pad = {axes[0].pad, axes[1].pad};
  if (!max && padded && up) {
    // The padding becomes part of the image, past which windows may extend.
    if (!ceil) layer.Fail("an average with its last windows cut along one axis only");
    Entry frame("pad2d");
    frame.Text("input", in.var).Field("paddings", ListText({pad[0], pad[0], pad[1], pad[1]}));
    input = net.Step(layer, frame, "padded");
    pad = {0, 0};
  }
  Entry entry("pool2d");
  entry.Text("input", input).Field("pool_size", SizeText({axes[0].kernel, axes[1].kernel}));
  if (!max) entry.Text("pool_type", "avg");
  if (axes[0].stride != 1 || axes[1].stride != 1)
    entry.Field("pool_stride", SizeText({axes[0].stride, axes[1].stride}));
  // For maxima: as much padding after the image as the last window needs.
  if (up && !ceil) {
    std::vector<int64_t> all;
    for (const PoolAxis& a : axes) {
      all.push_back(a.pad);
      all.push_back(
          std::max((a.out - 1) * a.stride + a.kernel - a.in - a.pad, a.rounded_up ? 0 : a.pad));
    }
    entry.Field("pool_padding", ListText(all));
  } else if (pad != Two{0, 0}) {
    entry.Field("pool_padding", SizeText(List(pad)));
  }
  if (ceil) entry.Bool("ceil_mode", true);
  if (!max && padded && !up) entry.Bool("exclusive", false);
  net.AddResult(layer, entry, {in.dims[0], in.dims[1], axes[0].out, axes[1].out});
}

// The positions of maxima among rows of `wide` elements, as positions among rows of `narrow`:
// p - floor(p / wide) (wide - narrow).
std::string NarrowMask(const Layer& layer, NetWriter& net, const std::string& mask, int64_t wide,
                       int64_t narrow) {
  if (wide == narrow) return mask;
  const auto number = [&](int64_t value, const char* name) {
    Entry entry("fill_constant");
    entry.Field("shape", "[1]").Int("value", value).Field("dtype", "INT32");
    return net.Step(layer, entry, name);
  };
  Entry rows("elementwise_floordiv");
  rows.Text("X", mask).Text("Y", number(wide, "width"));
  const std::string row = net.StepOp(layer, rows, "Out", "row");
  Entry extra("elementwise_mul"), less("elementwise_sub");
  extra.Text("X", row).Text("Y", number(wide - narrow, "padding"));
  less.Text("X", mask).Text("Y", net.StepOp(layer, extra, "Out", "extra"));
  return net.StepOp(layer, less, "Out", "narrow_mask");
}

// Maxima and their positions. The op rounds the number of windows down and pads both sides
// equally. If a last window reaches beyond the image, the image is padded with -inf there: any
// number is larger, so the padding never becomes a maximum.
void WriteMaskedPool(const Layer& layer, NetWriter& net, const Blob& in,
                     const std::array<PoolAxis, 2>& axes) {
  std::string x = in.var;
  Two more = {};
  for (size_t i = 0; i < 2; ++i) {
    const PoolAxis& a = axes[i];
    more[i] = std::max<int64_t>(0, (a.out - 1) * a.stride + a.kernel - a.padded());
  }
  if (more != Two{0, 0}) {
    Entry frame("pad2d");
    frame.Text("X", x).Field("paddings", ListText({0, more[0], 0, more[1]}));
    x = net.StepOp(layer, frame.Field("pad_value", "-inf"), "Out", "framed");
  }
  Entry op("max_pool2d_with_index");
  op.Text("X", x).Field("ksize", ListText({axes[0].kernel, axes[1].kernel}));
  op.Field("strides", ListText({axes[0].stride, axes[1].stride}));
  op.Field("paddings", ListText({axes[0].pad, axes[1].pad}));
  const Dims dims = {in.dims[0], in.dims[1], axes[0].out, axes[1].out};
  std::string mask = net.Temp(layer, "mask"), all = net.Temp(layer, "maxima");
  net.AddOp(op.Text("Out", all).Text("Mask", mask));
  // With padding, Caffe may leave out the last window.
  const auto part = [&](const std::string& var, const char* name) {
    bool cut = false;
    for (const PoolAxis& a : axes) {
      const int64_t size = a.padded() + more[static_cast<size_t>(&a - axes.data())];
      cut = cut || (size - a.kernel) / a.stride + 1 > a.out;
    }
    if (!cut) return var;
    Entry slice("slice");
    slice.Text("Input", var).Field("axes", "[2, 3]").Field("starts", "[0, 0]");
    slice.Field("ends", ListText({axes[0].out, axes[1].out}));
    return net.StepOp(layer, slice, "Out", name);
  };
  all = part(all, "kept");
  mask = NarrowMask(layer, net, part(mask, "kept_mask"), axes[1].in + more[1], axes[1].in);
  const bool index = net.IsReadByAll(layer.def.top(1), "Upsample");
  net.Add(Entry("assign").Text("input", all).Text("output", net.Out(layer, 0, dims)));
  Entry last(index ? "assign" : "cast");
  last.Text("input", mask);
  if (!index) last.Field("dtype", "FP32");
  net.Add(last.Text("output", net.Out(layer, 1, dims)));
  if (index) net.MarkIndex(layer, 1);
}

void WritePooling(const Layer& layer, NetWriter& net) {
  const PoolingParameter& p = layer.def.pooling_param();
  net.RequireBottoms(layer, 1, 1);
  if (p.pool() == PoolingParameter::STOCHASTIC)
    layer.Fail({"pooling_param", "pool"}, "stochastic pooling has no counterpart: MAX or AVE");
  const Blob in = ImagesIn(layer, net);
  const bool max = p.pool() == PoolingParameter::MAX;
  const bool masked = layer.def.top_size() == 2;
  if (layer.def.top_size() > 2 || (masked && (!max || p.global_pooling())))
    layer.Fail({"top"}, "a second top, the mask of maxima, needs MAX and a kernel");
  if (p.global_pooling()) {
    if (p.has_kernel_size() || p.has_kernel_h() || p.has_kernel_w())
      layer.Fail({"pooling_param"}, "global_pooling has no kernel");
    return WriteGlobalPool(layer, net, in, max ? "max" : "avg");
  }
  Two kernel, stride, pad;
  for (size_t i = 0; i < 2; ++i) {
    const bool h = i == 0;
    kernel[i] = PickSize(layer, p.has_kernel_size(), p.kernel_size(),
                         h ? p.has_kernel_h() : p.has_kernel_w(), h ? p.kernel_h() : p.kernel_w(),
                         0, "kernel_size");
    stride[i] = PickSize(layer, p.has_stride(), p.stride(), h ? p.has_stride_h() : p.has_stride_w(),
                         h ? p.stride_h() : p.stride_w(), 1, "stride");
    pad[i] = PickSize(layer, p.has_pad(), p.pad(), h ? p.has_pad_h() : p.has_pad_w(),
                      h ? p.pad_h() : p.pad_w(), 0, "pad");
  }
  RequirePositive(layer, kernel, "pooling_param", "kernel_size and stride");
  RequirePositive(layer, stride, "pooling_param", "kernel_size and stride");
  std::array<PoolAxis, 2> axes{};
  for (size_t i = 0; i < 2; ++i) {
    axes[i] = MakeAxis(layer, in.dims[2 + i], kernel[i], stride[i], pad[i], pad != Two{0, 0},
                       p.round_mode() == PoolingParameter::CEIL && p.ceil_mode());
    RequireLastWindowInside(layer, axes[i], max);
  }
  if (masked)
    WriteMaskedPool(layer, net, in, axes);
  else
    WritePool(layer, net, in, axes, max);
}

// --- local response normalisation ---

// Across channels: Caffe divides alpha by the number of channels in a sum; op lrn does not.
void WriteAcrossChannels(const Layer& layer, NetWriter& net, const Blob& in) {
  const LRNParameter& p = layer.def.lrn_param();
  const float alpha = static_cast<float>(static_cast<double>(p.alpha()) / p.local_size());
  Entry op("lrn");
  op.Text("X", in.var).Int("n", p.local_size()).Float("k", p.k()).Float("alpha", alpha);
  op.Float("beta", p.beta());
  const std::string mid = net.Temp(layer, "scale");
  net.AddOp(op.Text("Out", net.Out(layer, 0, in.dims)).Text("MidOut", mid));
}

// Within a channel: x (1 + alpha mean of x^2 over a window)^-beta; the means include padding.
void WriteWithinChannel(const Layer& layer, NetWriter& net, const Blob& in) {
  const LRNParameter& p = layer.def.lrn_param();
  if (p.has_k() && p.k() != 1)
    layer.Fail({"lrn_param", "k"}, "WITHIN_CHANNEL takes no k: in Caffe it is 1");
  const int64_t size = p.local_size();
  const std::string square = net.Step(layer, Entry("square").Text("input", in.var), "square");
  Entry pool("pool2d");
  pool.Text("input", square).Int("pool_size", size).Text("pool_type", "avg");
  if (size > 1) pool.Int("pool_padding", (size - 1) / 2);
  const std::string mean = net.Step(layer, pool.Bool("exclusive", false), "mean");
  Entry scale("scale");
  scale.Text("input", mean).Float("scale", p.alpha()).Float("bias", 1);
  const std::string base = net.Step(layer, scale, "base");
  const std::string power =
      net.Step(layer, Entry("pow").Text("input", base).Float("factor", -p.beta()), "power");
  net.AddResult(layer, Entry("elementwise_mul").Text("x", in.var).Text("y", power), in.dims);
}

void WriteLrn(const Layer& layer, NetWriter& net) {
  const LRNParameter& p = layer.def.lrn_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = ImagesIn(layer, net);
  if (p.local_size() % 2 != 1 || p.local_size() > INT32_MAX) {
    layer.Fail({"lrn_param", "local_size"},
               fmt::format("local_size must be odd, got {}", p.local_size()));
  }
  if (p.norm_region() == LRNParameter::ACROSS_CHANNELS)
    WriteAcrossChannels(layer, net, in);
  else
    WriteWithinChannel(layer, net, in);
}

// Columns [N, C k k, H', W'] from the result [N, C k k, H' W'] of op unfold.
void WriteIm2col(const Layer& layer, NetWriter& net) {
  const Convolution c = [&] {
    Layer copy = layer;
    copy.def.mutable_convolution_param()->set_num_output(1);
    return ReadConvolution(copy);
  }();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = ImagesIn(layer, net);
  Dims out = {in.dims[0], NumelOf({in.dims[1], c.kernel[0], c.kernel[1]}), 0, 0};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t span = in.dims[2 + i] + 2 * c.pad[i] - (c.dilation[i] * (c.kernel[i] - 1) + 1);
    if (span < 0) layer.Fail("its kernel is larger than the images");
    out[2 + i] = span / c.stride[i] + 1;
  }
  const std::string columns = net.Temp(layer, "columns");
  Entry op("unfold");
  op.Text("X", in.var).Field("kernel_sizes", ListText(List(c.kernel)));
  op.Field("strides", ListText(List(c.stride)));
  op.Field("paddings", ListText({c.pad[0], c.pad[1], c.pad[0], c.pad[1]}));
  op.Field("dilations", ListText(List(c.dilation)));
  net.AddOp(op.Text("Y", columns));
  Entry shape("reshape");
  shape.Text("input", columns).Field("shape", ListText({0, out[1], out[2], out[3]}));
  net.AddResult(layer, shape, out);
}

}  // namespace

const Blob& ImagesIn(const Layer& layer, const NetWriter& net, int bottom) {
  const Blob& in = net.KnownIn(layer, bottom);
  if (in.dims.size() != 4) {
    layer.Fail(fmt::format("its bottom must be images [N, C, H, W], got {}", ToText(in.dims)));
  }
  return in;
}

LayerTable VisionLayers() {
  const char* depthwise = "`conv2d` with a group for each channel";
  return {
      {"Convolution", WriteConvolution, "`conv2d` (two spatial axes)"},
      {"ConvolutionDepthwise", WriteDepthwise, depthwise},
      {"DepthwiseConvolution", WriteDepthwise, depthwise},
      {"Deconvolution", WriteDeconvolution, "op `conv2d_transpose` with `parameter`s"},
      {"Im2col", WriteIm2col, "op `unfold`"},
      {"LRN", WriteLrn, "op `lrn` with alpha / local_size; WITHIN_CHANNEL is composed of ops"},
      {"Pooling", WritePooling,
       "`pool2d`. Caffe rounds the number of windows up and leaves out one that begins in the "
       "padding: `ceil_mode`, or paddings that give the same windows. Its averages count "
       "padding, but not what sticks out of it: `exclusive: false`, or a `pad2d` before. "
       "STOCHASTIC is refused. ceil_mode: false is round_mode: FLOOR. With a second top, the mask "
       "of maxima: op `max_pool2d_with_index`"}};
}

}  // namespace coracle::caffe
