#pragma once
// Convolutions of images with shapes and attrs that fit together, for tests.

#include <coracle/test/op_test.h>

#include <random>
#include <string>
#include <vector>

namespace coracle {

using Ints = std::vector<int32_t>;

// A random case: shapes and attrs that fit together.
struct ConvCase {
  int64_t batch, channels, filters, groups, height, width, kh, kw;
  Ints strides, paddings, dilations;
  std::string algorithm, format;
  bool bias;

  Shape Input() const {
    return format == "NHWC" ? Shape{batch, height, width, channels}
                            : Shape{batch, channels, height, width};
  }
  OpTest Test(const std::string& type = "conv2d") const {
    OpTest test(type);
    test.Attr("strides", strides).Attr("paddings", paddings).Attr("dilations", dilations);
    test.Attr("padding_algorithm", algorithm).Attr("data_format", format);
    test.Attr("groups", static_cast<int32_t>(groups));
    test.RandomInput("Input", Input()).RandomInput("Filter", {filters, channels / groups, kh, kw});
    if (bias) test.RandomInput("Bias", {filters});
    return test;
  }
};

inline ConvCase RandomCase(std::mt19937& random) {
  auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  ConvCase c;
  c.batch = pick(1, 3);
  c.groups = pick(0, 2) ? 1 : pick(1, 4);
  c.channels = c.groups * pick(1, 9);
  c.filters = c.groups * pick(1, 23);
  c.kh = pick(1, 4);
  c.kw = pick(1, 5);
  c.strides = {pick(1, 2), pick(1, 3)};
  c.dilations = pick(0, 2) ? Ints{1, 1} : Ints{pick(1, 2), pick(1, 2)};
  c.paddings = pick(0, 1) ? Ints{pick(0, 2), pick(0, 2)}
                          : Ints{pick(0, 2), pick(0, 1), pick(0, 2), pick(0, 2)};
  c.algorithm = std::vector<std::string>{"EXPLICIT", "EXPLICIT", "SAME", "VALID"}[pick(0, 3)];
  c.format = pick(0, 1) ? "NHWC" : "NCHW";
  c.height = c.dilations[0] * (c.kh - 1) + pick(1, 9);
  c.width = c.dilations[1] * (c.kw - 1) + pick(1, 17);
  c.bias = pick(0, 1);
  return c;
}

}  // namespace coracle
