// Layers for images [N, C, H, W].

#include <coracle/framework/ir/edit_guard.h>
#include <coracle/layers/internal/layer_checks.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/layer_scope.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

constexpr char kImage[] = "tensor [N, C, H, W]";
constexpr char kHeightAndWidth[] = "height and width";

const LayerFields<Conv2dOptions>& Conv2dLayer() {
  using O = Conv2dOptions;
  static const auto layer =
      LayerFields<O>("conv2d", "Convolution (cross-correlation) with a bias for each filter.")
          .Input("input", kImage)
          .Field("num_filters", &O::num_filters, "channels of the result", kRequired,
                 PositiveRange())
          .Field("filter_size", &O::filter_size, "height and width; one number for both", kRequired,
                 PositiveRange())
          .Field("stride", &O::stride, kHeightAndWidth)
          .Paddings("padding", &O::padding)
          .Field("dilation", &O::dilation, kHeightAndWidth)
          .Field("groups", &O::groups,
                 "number of groups of channels, each with an independent convolution",
                 PositiveRange())
          .Param("param", &O::param_attr,
                 "filters; default: normal with std sqrt(2 / (height * width * channels))")
          .Bias("bias", &O::bias_attr, "bias; default: 0")
          .BiasTerm()
          .Example("image: [-1, 3, 32, 32]",
                   R"(input: "image" num_filters: 8 filter_size: 3 padding: 1 output: "out")");
  return layer;
}

const LayerFields<Pool2dOptions>& Pool2dLayer() {
  using O = Pool2dOptions;
  static const auto layer =
      LayerFields<O>("pool2d", "Maximum or average over windows.")
          .Input("input", kImage)
          .Field("pool_size", &O::pool_size, "height and width of the window", kNoDefault)
          .Field("pool_type", &O::pool_type, "max or avg")
          .Field("pool_stride", &O::pool_stride, kHeightAndWidth)
          .Paddings("pool_padding", &O::pool_padding)
          .Field("global_pooling", &O::global_pooling, "one window over the whole image")
          .Field("ceil_mode", &O::ceil_mode, "windows that start inside the image count")
          .Field("exclusive", &O::exclusive, "an average counts no padding")
          .Field("adaptive", &O::adaptive, "pool_size is the size of the result")
          .Example("image: [-1, 3, 32, 32]",
                   R"(input: "image" pool_size: 2 pool_stride: 2 output: "out")");
  return layer;
}

void RequireRank4(const char* layer, const Variable& x) {
  if (x.shape().rank() == 4) return;
  ThrowInvalid(fmt::format("{}: its input must have 4 dims (NCHW), got {} of shape {}", layer,
                           x.name(), x.shape().ToString()));
}

}  // namespace

Variable Builder::Conv2d(const Variable& x, const Conv2dOptions& options) {
  const EditGuard guard(*main_, *startup_);
  RequireRank4("conv2d", x);
  RequireKnown("conv2d", x, 1, 2);
  Conv2dLayer().Check(options);
  const int64_t channels = x.shape()[1];
  const int64_t groups = options.groups;
  if (channels % groups != 0) {
    ThrowInvalid(fmt::format("conv2d: groups must divide the {} channels of {}, got {}", channels,
                             x.name(), groups));
  }
  const bool depthwise = groups > 1 && groups == channels && options.num_filters % channels == 0;
  const char* type = depthwise ? "depthwise_conv2d" : "conv2d";
  LayerScope layer(*this, type, OutputOf(options));
  const auto [kh, kw] = options.filter_size;
  const double elements = static_cast<double>(kh) * kw * static_cast<double>(channels);
  Variable w = Parameter(
      layer.name() + ".w",
      {int64_t{options.num_filters}, channels / groups, int64_t{kh}, int64_t{kw}}, x.dtype(),
      options.param_attr, NormalInitializer(0, elements > 0 ? std::sqrt(2 / elements) : 0));
  const std::string out = layer.Out(options.bias_attr.has_value());
  Append(type, {{"Input", {NameIn(*this, x)}}, {"Filter", {w.name()}}}, {{"Output", {out}}},
         {{"strides", options.stride.ToVector()},
          {"paddings", options.padding.values},
          {"padding_algorithm", options.padding.algorithm},
          {"dilations", options.dilation.ToVector()},
          {"groups", options.groups},
          {"data_format", std::string("NCHW")}});
  return layer.Finish(layer.AddBias(out, options.bias_attr, 1));
}

Variable Builder::Pool2d(const Variable& x, const Pool2dOptions& options) {
  const EditGuard guard(*main_, *startup_);
  const int32_t smallest = std::min(options.pool_size.height, options.pool_size.width);
  if (!options.global_pooling && smallest <= 0)
    ThrowInvalid(fmt::format("pool2d: pool_size must be positive, got {}", smallest));
  LayerScope layer(*this, "pool2d", OutputOf(options));
  const std::string out = layer.Out();
  const Size2 size = options.global_pooling ? Size2(1) : options.pool_size;
  Append("pool2d", {{"X", {NameIn(*this, x)}}}, {{"Out", {out}}},
         {{"pooling_type", options.pool_type},
          {"ksize", size.ToVector()},
          {"global_pooling", options.global_pooling},
          {"strides", options.pool_stride.ToVector()},
          {"paddings", options.pool_padding.values},
          {"padding_algorithm", options.pool_padding.algorithm},
          {"ceil_mode", options.ceil_mode},
          {"exclusive", options.exclusive},
          {"adaptive", options.adaptive},
          {"data_format", std::string("NCHW")}});
  return layer.Finish(out);
}

std::vector<LayerDef> internal::ImageLayers() {
  LayerDef pool =
      Pool2dLayer().Build([](Builder& net, const LayerArgs& args, const Pool2dOptions& options) {
        if (!args.Has("pool_size") && !options.global_pooling)
          ThrowInvalid("pool2d: pool_size is required unless global_pooling");
        return std::vector<Variable>{net.Pool2d(args.Var("input"), options)};
      });
  return {Conv2dLayer().Build(&Builder::Conv2d), std::move(pool)};
}

}  // namespace coracle
