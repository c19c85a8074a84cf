#include <coracle/bench/workloads/networks.h>
#include <coracle/initializer/initializer.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

// Draws uniformly in +-1 / sqrt(fan in).
ParamAttr FanIn(double n) {
  return {.initializer = UniformInitializer(-1 / std::sqrt(n), 1 / std::sqrt(n))};
}

struct ConvBn {
  int filters, size = 1, stride = 1, groups = 1;
  std::string act = "";
  bool is_test = false;
};

Variable Append(Builder& net, const Variable& x, const ConvBn& layer) {
  const Variable y = net.Conv2d(x, {.num_filters = layer.filters,
                                    .filter_size = layer.size,
                                    .stride = layer.stride,
                                    .padding = layer.size / 2,
                                    .groups = layer.groups,
                                    .bias_attr = std::nullopt});
  return net.BatchNorm(y, {.is_test = layer.is_test, .act = layer.act});
}

int Channels(const Variable& x) { return static_cast<int>(x.shape()[1]); }

// The mean of each channel.
Variable GlobalPool(Builder& net, const Variable& x) {
  return net.Pool2d(x, {.pool_size = 1, .pool_type = "avg", .adaptive = true});
}

struct Block {
  int width, stride;
  bool bottleneck, is_test;
};

Variable Append(Builder& net, const Variable& x, const Block& block) {
  const bool test = block.is_test;
  const int out = block.bottleneck ? 4 * block.width : block.width;
  Variable y = x;
  if (block.bottleneck)
    y = Append(net, y, {.filters = block.width, .act = "relu", .is_test = test});
  y = Append(
      net, y,
      {.filters = block.width, .size = 3, .stride = block.stride, .act = "relu", .is_test = test});
  y = Append(net, y, {.filters = out, .size = block.bottleneck ? 1 : 3, .is_test = test});
  Variable shortcut = x;
  if (block.stride != 1 || Channels(x) != out)
    shortcut = Append(net, x, {.filters = out, .stride = block.stride, .is_test = test});
  return net.Add(y, shortcut, {.act = "relu"});
}

struct Stages {
  std::vector<int> widths, depths;
  bool bottleneck, is_test;
  int classes;
};

Variable Append(Builder& net, Variable x, const Stages& stages) {
  for (size_t s = 0; s < stages.depths.size(); ++s) {
    for (int d = 0; d < stages.depths[s]; ++d) {
      const int stride = s > 0 && d == 0 ? 2 : 1;
      x = Append(net, x, Block{stages.widths[s], stride, stages.bottleneck, stages.is_test});
    }
  }
  return net.Fc(GlobalPool(net, x), {.size = stages.classes});
}

// Multiplies the channels of x by weights in [0, 1] computed from the means of the channels.
Variable SqueezeAndExcite(Builder& net, const Variable& x) {
  const int channels = Channels(x), squeezed = std::max(8, (channels / 4 + 4) / 8 * 8);
  const Variable s =
      net.Conv2d(GlobalPool(net, x), {.num_filters = squeezed, .filter_size = 1, .act = "relu"});
  const Variable e = net.Conv2d(s, {.num_filters = channels, .filter_size = 1});
  return net.Mul(x, net.Unary("hard_sigmoid", e, {{"slope", 1.0f / 6}, {"offset", 0.5f}}));
}

// A row of MobileNetV3's table: an inverted residual.
struct InvertedResidual {
  int size, expanded, out;
  bool squeeze;
  const char* act;
  int stride;
};

Variable Append(Builder& net, const Variable& x, const InvertedResidual& block, bool test) {
  Variable y = x;
  if (Channels(x) != block.expanded)
    y = Append(net, y, {.filters = block.expanded, .act = block.act, .is_test = test});
  y = Append(net, y,
             {.filters = block.expanded,
              .size = block.size,
              .stride = block.stride,
              .groups = block.expanded,
              .act = block.act,
              .is_test = test});
  if (block.squeeze) y = SqueezeAndExcite(net, y);
  y = Append(net, y, {.filters = block.out, .is_test = test});
  return block.stride == 1 && Channels(x) == block.out ? net.Add(x, y) : y;
}

struct Conv1d {
  int filters, taps = 1, dilation = 1, groups = 1;
};

Variable Append(Builder& net, const Variable& x, const Conv1d& layer) {
  const Variable image = net.Unsqueeze(x, {2});
  const Variable y = net.Conv2d(image, {.num_filters = layer.filters,
                                        .filter_size = {1, layer.taps},
                                        .padding = {0, layer.taps / 2 * layer.dilation},
                                        .dilation = {1, layer.dilation},
                                        .groups = layer.groups});
  return net.Squeeze(y, {2});
}

}  // namespace

Variable Mlp(Builder& net, const Variable& x) {
  const Variable h = net.Fc(net.Fc(x, {.size = 512, .act = "relu"}), {.size = 512, .act = "relu"});
  return net.Fc(h, {.size = 10});
}

Variable LeNet(Builder& net, const Variable& image) {
  const Variable c1 =
      net.Conv2d(image, {.num_filters = 20, .filter_size = 5, .param_attr = FanIn(25)});
  const Variable p1 = net.Pool2d(c1, {.pool_size = 2, .pool_stride = 2});
  const Variable c2 =
      net.Conv2d(p1, {.num_filters = 50, .filter_size = 5, .param_attr = FanIn(500)});
  const Variable p2 = net.Pool2d(c2, {.pool_size = 2, .pool_stride = 2});
  return net.Fc(net.Fc(p2, {.size = 500, .act = "relu"}), {.size = 10});
}

Variable ResNet20(Builder& net, const Variable& image, bool is_test) {
  const Variable x =
      Append(net, image, {.filters = 16, .size = 3, .act = "relu", .is_test = is_test});
  return Append(net, x, Stages{{16, 32, 64}, {3, 3, 3}, false, is_test, 10});
}

Variable ResNet(Builder& net, const Variable& image, const ResNetOptions& options) {
  const Variable x =
      Append(net, image,
             {.filters = 64, .size = 7, .stride = 2, .act = "relu", .is_test = options.is_test});
  const Variable pooled = net.Pool2d(x, {.pool_size = 3, .pool_stride = 2, .pool_padding = 1});
  return Append(
      net, pooled,
      Stages{{64, 128, 256, 512}, options.depths, options.bottleneck, options.is_test, 1000});
}

Variable MobileNetV1(Builder& net, const Variable& image, bool is_test) {
  struct Row {
    int out, stride;
  };
  std::vector<Row> rows = {{64, 1}, {128, 2}, {128, 1}, {256, 2}, {256, 1}, {512, 2}};
  rows.insert(rows.end(), 5, {512, 1});
  rows.insert(rows.end(), {{1024, 2}, {1024, 1}});
  Variable x = Append(net, image,
                      {.filters = 32, .size = 3, .stride = 2, .act = "relu", .is_test = is_test});
  for (const Row& row : rows) {
    x = Append(net, x,
               {.filters = Channels(x),
                .size = 3,
                .stride = row.stride,
                .groups = Channels(x),
                .act = "relu",
                .is_test = is_test});
    x = Append(net, x, {.filters = row.out, .act = "relu", .is_test = is_test});
  }
  return net.Fc(GlobalPool(net, x), {.size = 1000});
}

Variable MobileNetV3Large(Builder& net, const Variable& image, bool is_test) {
  const char *relu = "relu", *swish = "hard_swish";
  const std::vector<InvertedResidual> rows = {
      {3, 16, 16, false, relu, 1},   {3, 64, 24, false, relu, 2},   {3, 72, 24, false, relu, 1},
      {5, 72, 40, true, relu, 2},    {5, 120, 40, true, relu, 1},   {5, 120, 40, true, relu, 1},
      {3, 240, 80, false, swish, 2}, {3, 200, 80, false, swish, 1}, {3, 184, 80, false, swish, 1},
      {3, 184, 80, false, swish, 1}, {3, 480, 112, true, swish, 1}, {3, 672, 112, true, swish, 1},
      {5, 672, 160, true, swish, 2}, {5, 960, 160, true, swish, 1}, {5, 960, 160, true, swish, 1}};
  Variable x =
      Append(net, image, {.filters = 16, .size = 3, .stride = 2, .act = swish, .is_test = is_test});
  for (const InvertedResidual& row : rows) x = Append(net, x, row, is_test);
  x = Append(net, x, {.filters = 960, .act = swish, .is_test = is_test});
  x = net.Fc(GlobalPool(net, x), {.size = 1280, .act = swish});
  return net.Fc(x, {.size = 1000});
}

Variable SignalNet(Builder& net, const Variable& signal) {
  constexpr int kChannels = 256;
  Variable x = net.Relu(Append(net, signal, Conv1d{.filters = kChannels, .taps = 5}));
  for (const int dilation : {1, 2, 4, 8}) {
    const Conv1d wide = {.filters = kChannels, .taps = 3, .dilation = dilation};
    const Conv1d depthwise = {.filters = kChannels, .taps = 9, .groups = kChannels};
    Variable y = net.Relu(Append(net, x, wide));
    y = net.Relu(Append(net, y, depthwise));
    y = Append(net, y, Conv1d{.filters = kChannels});
    x = net.Add(x, y, {.act = "relu"});
  }
  return net.Fc(net.ReduceMean(x, {.dim = {2}}), {.size = 35});
}

}  // namespace coracle
