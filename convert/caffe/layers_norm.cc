// Normalization: BatchNorm of Caffe and its forks, and SSD's Normalize.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <limits>

namespace coracle::caffe {
namespace {

using Wish = NetWriter::ParamWish;
using Layout = ParamSource::Layout;
using proto::caffe::BNParameter;
using proto::caffe::FillerParameter;

int64_t ChannelsOf(const Layer& layer, const Blob& in) {
  if (in.dims.size() < 2 || in.dims[1] < 1)
    layer.Fail(fmt::format("its bottom needs known channels, got {}", ToText(in.dims)));
  return in.dims[1];
}

void RequireOneTop(const Layer& layer) {
  if (layer.def.top_size() != 1) layer.Fail({"top"}, "it takes one top");
}

// (x - mean) / sqrt(variance + eps), with the statistics of the batch in both phases.
Entry NormalizedByBatch(const Layer& layer, NetWriter& net, const Blob& in, float eps) {
  Dims over;
  for (size_t i = 0; i < in.dims.size(); ++i)
    if (i != 1) over.push_back(static_cast<int64_t>(i));
  const auto mean_of = [&](const std::string& x, const char* name) {
    Entry mean("reduce_mean");
    mean.Text("input", x).Field("dim", ListText(over)).Bool("keep_dim", true);
    return net.Step(layer, mean, name);
  };
  const std::string centred = net.Step(
      layer, Entry("elementwise_sub").Text("x", in.var).Text("y", mean_of(in.var, "batch_mean")),
      "centred");
  const std::string square = net.Step(layer, Entry("square").Text("input", centred), "square");
  Entry more("scale");
  more.Text("input", mean_of(square, "batch_variance")).Float("bias", eps);
  const std::string variance = net.Step(layer, more, "variance_eps");
  const std::string deviation = net.Step(layer, Entry("sqrt").Text("input", variance), "deviation");
  return Entry("elementwise_div").Text("x", centred).Text("y", deviation);
}

// The Scale layer that follows a BatchNorm and holds its scale and shift; nullptr if there is none.
const Layer* ScaleBehind(const Layer& layer, NetWriter& net) {
  const Layer* next = net.OnlyReader(layer.def.top(0));
  if (!next || next->def.type() != "Scale" || next->def.bottom_size() != 1 ||
      next->def.top_size() != 1 || !MayFuse(layer, *next))
    return nullptr;
  const auto& scale = next->def.scale_param();
  return scale.axis() == 1 && scale.num_axes() == 1 ? next : nullptr;
}

// Statistics are decaying sums, divided by a third blob, the sum of their weights. Layers may share
// them; they are never trained.
std::string Statistic(const Layer& layer, NetWriter& net, int blob, bool mean, int64_t channels,
                      Layout layout) {
  return net
      .Claim(layer, {.blob = blob,
                     .dims = {channels},
                     .var = layer.def.name() + (mean ? ".mean" : ".variance"),
                     .layout = layout})
      .var;
}

// The fields of a batch_norm's scale and shift, which belong to `owner`.
void AddScaleAndShift(const Layer& owner, NetWriter& net, const Wish& scale, const Wish* shift,
                      Entry* entry) {
  const auto with_name = [](const std::string& var, std::string text) {
    if (text.find("name: ") == 0) return text;
    return "name: " + Quoted(var) + (text.empty() ? "" : " " + text);
  };
  entry->Message("param", with_name(scale.var, net.Param(owner, scale)));
  entry->Message("bias", shift ? with_name(shift->var, net.Param(owner, *shift))
                               : std::string("trainable: false"));
}

void WriteBatchNorm(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.batch_norm_param();
  net.RequireBottoms(layer, 1, 1);
  RequireOneTop(layer);
  const Blob in = net.In(layer);
  const int64_t channels = ChannelsOf(layer, in);
  const std::string& name = layer.def.name();
  // NVIDIA's Caffe: the layer has a scale and a shift, and its statistics are not sums.
  const bool own = p.scale_bias() || p.has_scale_filler() || p.has_bias_filler();
  if (p.has_use_global_stats() && !p.use_global_stats() && net.options().test && !own)
    return net.AddResult(layer, NormalizedByBatch(layer, net, in, p.eps()), in.dims);
  const Layer* scale = own ? nullptr : ScaleBehind(layer, net);
  const Layout layout = own ? Layout::kSame : Layout::kScaledSum;
  Entry entry("batch_norm");
  entry.Text("input", in.var);
  if (p.moving_average_fraction() != 0.9f) entry.Float("momentum", p.moving_average_fraction());
  if (p.eps() != 1e-5f) entry.Float("epsilon", p.eps());
  if (p.use_global_stats()) entry.Bool("use_global_stats", true);
  entry.Text("name", name);
  entry.Text("moving_mean_name", Statistic(layer, net, 0, true, channels, layout));
  entry.Text("moving_variance_name", Statistic(layer, net, 1, false, channels, layout));
  if (net.options().trained && !net.options().test && !p.use_global_stats()) {
    net.net().notes.push_back(
        layer.where +
        ": BatchNorm's running statistics: Caffe divides them by the sum of their weights so far, "
        "here they begin at 0 and 1; they agree after some thousand steps");
  }
  if (!own && !scale) {
    entry.Message("param", "trainable: false").Message("bias", "trainable: false");
    return net.AddResult(layer, entry, in.dims);
  }
  const Layer& owner = scale ? *scale : layer;
  const auto& s = owner.def.scale_param();
  const FillerParameter* filler = s.has_filler() ? &s.filler() : nullptr;
  const FillerParameter* shift_filler = s.has_bias_filler() ? &s.bias_filler() : nullptr;
  if (own && p.has_scale_filler()) filler = &p.scale_filler();
  if (own && p.has_bias_filler()) shift_filler = &p.bias_filler();
  const Wish factor{.blob = own ? 3 : 0,
                    .dims = {channels},
                    .var = owner.def.name() + ".w_0",
                    .filler = filler,
                    .constant = 1,
                    .model_default = 1};
  const Wish shift{.blob = own ? 4 : 1,
                   .dims = {channels},
                   .var = owner.def.name() + ".b_0",
                   .filler = shift_filler};
  AddScaleAndShift(owner, net, factor, own || s.bias_term() ? &shift : nullptr, &entry);
  if (!scale) return net.AddResult(layer, entry, in.dims);
  net.MarkWritten(*scale);
  net.AddResultOf(layer, *scale, entry, in.dims);
}

// --- BN ---

// Four blobs: scale, shift, moving mean and variance (PSPNet, temporal segment networks; SENet's
// CuDNNBatchNorm). `frozen`: always the moving statistics, and nothing is trained.
void WriteFourBlobs(const Layer& layer, NetWriter& net, const BNParameter& p, float momentum) {
  const Blob in = net.In(layer);
  const int64_t channels = ChannelsOf(layer, in);
  const std::string& name = layer.def.name();
  Layer owner = layer;
  for (int i = 0; p.frozen() && i < 2; ++i) {
    while (owner.def.param_size() <= i) owner.def.add_param();
    owner.def.mutable_param(i)->set_lr_mult(0);
  }
  Entry entry("batch_norm");
  entry.Text("input", in.var);
  if (momentum != 0.9f) entry.Float("momentum", momentum);
  if (p.eps() != 1e-5f) entry.Float("epsilon", p.eps());
  if (p.frozen()) entry.Bool("use_global_stats", true);
  entry.Text("name", name);
  entry.Text("moving_mean_name", Statistic(layer, net, 2, true, channels, Layout::kSame));
  entry.Text("moving_variance_name", Statistic(layer, net, 3, false, channels, Layout::kSame));
  const FillerParameter* filler = p.has_slope_filler()   ? &p.slope_filler()
                                  : p.has_scale_filler() ? &p.scale_filler()
                                                         : nullptr;
  const Wish factor{.blob = 0,
                    .dims = {channels},
                    .var = name + ".w_0",
                    .filler = filler,
                    .constant = 0,
                    .model_default = 1};
  const Wish shift{.blob = 1,
                   .dims = {channels},
                   .var = name + ".b_0",
                   .filler = p.has_bias_filler() ? &p.bias_filler() : nullptr};
  AddScaleAndShift(owner, net, factor, &shift, &entry);
  net.AddResult(layer, entry, in.dims);
}

// x scale + shift, with one of each for each channel.
void AddScaled(const Layer& layer, NetWriter& net, const std::string& x, const Blob& in,
               const BNParameter& p) {
  const int64_t channels = ChannelsOf(layer, in);
  const auto parameter = [&](int blob, const char* suffix, const FillerParameter* filler) {
    return net.Parameter(layer, {.blob = blob,
                                 .dims = {channels},
                                 .var = layer.def.name() + suffix,
                                 .filler = filler,
                                 .constant = 0});
  };
  const auto by_channel = [&](const char* kind, const std::string& a, const std::string& b) {
    Entry entry(kind);
    entry.Text("x", a).Text("y", b);
    return in.dims.size() > 2 ? entry.Int("axis", 1) : entry;
  };
  const std::string scale =
      parameter(0, ".w_0", p.has_scale_filler() ? &p.scale_filler() : nullptr);
  const std::string scaled = net.Step(layer, by_channel("elementwise_mul", x, scale), "scaled");
  const std::string shift =
      parameter(1, ".b_0", p.has_shift_filler() ? &p.shift_filler() : nullptr);
  net.AddResult(layer, by_channel("elementwise_add", scaled, shift), in.dims);
}

// Two blobs (SegNet, ENet): statistics of the batch in both phases with an eps of 1e-9, or, as
// INFERENCE, no statistics.
void WriteTwoBlobs(const Layer& layer, NetWriter& net, const BNParameter& p) {
  const Blob in = net.In(layer);
  std::string x = in.var;
  if (p.bn_mode() == BNParameter::LEARN)
    x = net.Step(layer, NormalizedByBatch(layer, net, in, 1e-9f), "normalized");
  AddScaled(layer, net, x, in, p);
}

void WriteBn(const Layer& layer, NetWriter& net) {
  const BNParameter& p = layer.def.bn_param();
  net.RequireBottoms(layer, 1, 1);
  RequireOneTop(layer);
  const bool two = p.has_bn_mode() || p.has_scale_filler() || p.has_shift_filler();
  const bool four = p.has_slope_filler() || p.has_bias_filler() || p.has_momentum() ||
                    p.has_eps() || p.has_frozen() || p.has_engine();
  if (two && four) {
    layer.Fail(
        {"bn_param"},
        "fields of SegNet's BN (bn_mode, scale_filler, shift_filler) and of PSPNet's exclude "
        "each other");
  }
  if (!two && !four && layer.def.param_size() < 3) {
    layer.Fail({"bn_param"},
               "two versions of BN exist: write bn_mode (SegNet: two blobs), or frozen (PSPNet: "
               "four blobs) into bn_param");
  }
  if (two)
    WriteTwoBlobs(layer, net, p);
  else
    WriteFourBlobs(layer, net, p, p.momentum());
}

void WriteCudnnBatchNorm(const Layer& layer, NetWriter& net) {
  const BNParameter& p = layer.def.cudnn_batch_norm_param();
  net.RequireBottoms(layer, 1, 1);
  RequireOneTop(layer);
  WriteFourBlobs(layer, net, p, p.has_momentum() ? p.momentum() : 0.999f);
}

// --- SSD's Normalize ---

// x scale / sqrt(sum of x^2 + eps), with the sum over the channels at each place, or the image.
void WriteNormalize(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.norm_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = p.across_spatial() ? net.KnownIn(layer) : net.In(layer);
  const int64_t channels = ChannelsOf(layer, in);
  const bool flat = p.across_spatial() && in.dims.size() > 2;
  std::string x = in.var;
  if (flat) x = net.Step(layer, Entry("flatten").Text("input", x), "flat");
  Entry op("norm");
  op.Text("X", x).Int("axis", 1).Float("epsilon", p.eps());
  x = net.StepOp(layer, op, "Out", "normalized");
  if (flat) {
    Dims shape = in.dims;
    shape[0] = -1;
    Entry back("reshape");
    x = net.Step(layer, back.Text("input", x).Field("shape", ListText(shape)), "images");
  }
  const std::string scale =
      net.Parameter(layer, {.blob = 0,
                            .dims = p.channel_shared() ? Dims{} : Dims{channels},
                            .var = layer.def.name() + ".w_0",
                            .filler = p.has_scale_filler() ? &p.scale_filler() : nullptr,
                            .constant = 1});
  Entry product("elementwise_mul");
  product.Text("x", x).Text("y", scale);
  if (!p.channel_shared() && in.dims.size() > 2) product.Int("axis", 1);
  net.AddResult(layer, product, in.dims);
}

}  // namespace

LayerTable NormLayers() {
  return {
      {"BN", WriteBn,
       "PSPNet's (slope_filler, frozen, ...): `batch_norm`; SegNet's and ENet's (bn_mode, "
       "scale_filler, ...): composed of ops"},
      {"BatchNorm", WriteBatchNorm,
       "`batch_norm`, with a following Scale as its scale and shift; statistics of the batch in "
       "tests are composed of ops. scale_bias (NVIDIA) is its own scale and shift"},
      {"CuDNNBatchNorm", WriteCudnnBatchNorm, "`batch_norm`"},
      {"Normalize", WriteNormalize, "op `norm`, and `elementwise_mul` with a `parameter`"}};
}

}  // namespace coracle::caffe
