// conv2d and depthwise_conv2d with ResidualData and an activation.

#include <coracle/operators/conv/conv_direct_simd.h>
#include <coracle/test/operators/conv/conv_case.h>

#include <cmath>

namespace coracle::conv2d_activation_test {

// Two filters of one element on an image of 1 x 4: x and -2 x + 1.
TEST(Conv2d, Activations) {
  const std::vector<double> sums = {-3, -0.5, 1, 7, 7, 2, -1, -13};
  const auto check = [&](const std::string& name, float alpha, float beta, double (*f)(double)) {
    SCOPED_TRACE(name);
    std::vector<double> values;
    for (double x : sums) values.push_back(f(x));
    for (const char* type : {"conv2d", "depthwise_conv2d"}) {
      OpTest(type)
          .Attr("fuse_activation", name)
          .Attr("fuse_alpha", alpha)
          .Attr("fuse_beta", beta)
          .Input("Input", {1, 1, 1, 4}, {-3, -0.5, 1, 7})
          .Input("Filter", {2, 1, 1, 1}, {1, -2})
          .Input("Bias", {2}, {0, 1})
          .Expect("Output", {1, 2, 1, 4}, values);
    }
  };
  check("", 0, 0, [](double x) { return x; });
  check("relu", 0, 0, [](double x) { return std::max(x, 0.0); });
  check("relu6", 6, 0, [](double x) { return std::min(std::max(x, 0.0), 6.0); });
  check("relu6", 2.5f, 0, [](double x) { return std::min(std::max(x, 0.0), 2.5); });
  check("leaky_relu", 0.25f, 0, [](double x) { return x < 0 ? x / 4 : x; });
  check("hard_swish", 0, 0, [](double x) { return x * std::min(std::max(x + 3, 0.0), 6.0) / 6; });
  check("hard_sigmoid", 0.25f, 0.5f,
        [](double x) { return std::min(std::max(x / 4 + 0.5, 0.0), 1.0); });
  check("swish", 2, 0, [](double x) { return x / (1 + std::exp(-2 * x)); });
  check("sigmoid", 0, 0, [](double x) { return 1 / (1 + std::exp(-x)); });
  check("tanh", 0, 0, [](double x) { return std::tanh(x); });
  check("gelu", 0, 0, [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2)); });
  check("gelu_tanh", 0, 0, [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  });
  check("clip", -1.5f, 2, [](double x) { return std::min(std::max(x, -1.5), 2.0); });
  OpTest("conv2d")
      .Attr("fuse_activation", "sofmax")
      .Input("Input", {1, 1, 1, 1}, {1})
      .Input("Filter", {1, 1, 1, 1}, {1})
      .ExpectError("relu");
}

// The residual is added before the activation, from other memory and in place; both layouts, all
// sizes of parts, and channels that fill vectors or do not.
TEST(Conv2d, ActivationsAndResidualFastAgainstReference) {
  std::mt19937 random(11);
  const std::vector<std::string> names = {"relu",      "relu6",   "leaky_relu",   "hard_swish",
                                          "swish",     "sigmoid", "tanh",         "gelu",
                                          "gelu_tanh", "clip",    "hard_sigmoid", ""};
  for (int trial = 0; trial < 48; ++trial) {
    ConvCase c = RandomCase(random);
    if (trial % 3 == 0) {
      c.channels = c.groups * 16;
      c.filters = c.groups * 32;
    }
    const std::string& name = names[static_cast<size_t>(trial) % names.size()];
    SCOPED_TRACE(::testing::Message() << "trial " << trial << " " << name << " " << c.format);
    OpTest test = c.Test();
    test.Attr("fuse_activation", name).Attr("fuse_alpha", 0.3f).Attr("fuse_beta", 0.8f);
    if (trial % 2) test.RandomInput("ResidualData", c.Test().Output("Output").shape());
    test.CheckFast(1e-4, {});
  }
  ConvCase large{1, 32, 64, 1, 57, 59, 3, 3, {1, 1}, {1, 1}, {1, 1}, "EXPLICIT", "NHWC", true};
  for (const char* name : {"relu", "hard_swish"}) {
    OpTest test = large.Test();
    test.Attr("fuse_activation", name).RandomInput("ResidualData", {1, 57, 59, 64});
    const Tensor want = test.Output("Output", KernelMode::kReference);
    const Tensor got = test.Output("Output");
    for (int64_t i = 0; i < want.numel(); ++i)
      ASSERT_NEAR(want.data<float>()[i], got.data<float>()[i], 1e-4f);
    test.InPlace("ResidualData", "Output");
    const Tensor in_place = test.Output("Output");
    for (int64_t i = 0; i < want.numel(); ++i)
      ASSERT_EQ(got.data<float>()[i], in_place.data<float>()[i]);
  }
}

// Channels that fill vectors or do not, and windows that reach past the image or not.
TEST(Conv2d, DepthwiseFastAgainstReference) {
  std::mt19937 random(17);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const std::vector<std::string> names = {"", "relu", "hard_swish", "relu6"};
  for (int trial = 0; trial < 40; ++trial) {
    ConvCase c{};
    c.batch = pick(1, 2);
    c.channels = c.filters = c.groups = pick(15, 50);
    c.kw = trial % 2 ? 3 : 5;
    c.kh = pick(1, 5);
    c.strides = {pick(1, 3), pick(1, 2)};
    c.dilations = {pick(1, 2), 1};
    c.paddings = {pick(0, 3), pick(0, 2), pick(0, 3), pick(0, 4)};
    c.algorithm = "EXPLICIT";
    c.format = "NHWC";
    c.height = c.dilations[0] * (c.kh - 1) + pick(1, 9);
    c.width = c.kw - 1 + pick(1, 30);
    c.bias = pick(0, 1);
    SCOPED_TRACE(::testing::Message()
                 << trial << " " << c.Input().ToString() << " " << c.kh << "x" << c.kw);
    OpTest test = c.Test("depthwise_conv2d");
    test.Attr("fuse_activation", names[static_cast<size_t>(trial) % names.size()]);
    test.Attr("fuse_alpha", 0.5f);
    if (trial % 5 == 0) test.RandomInput("ResidualData", c.Test().Output("Output").shape());
    test.CheckFast(2e-5);
  }
}

// Whole blocks of outputs, followed by single outputs.
TEST(Conv2d, DepthwiseReluKeepsNans) {
  constexpr int64_t kWidth = 9, kChannels = 16;
  std::vector<float> image(3 * kWidth * kChannels, -1), filter(9 * kChannels, 1), out;
  for (const int64_t at : {0, 4, 8}) {
    std::vector<float> broken = image;
    for (int64_t c = 0; c < kChannels; ++c)
      broken[static_cast<size_t>((kWidth + at) * kChannels + c)] = std::nanf("");
    out.assign(kWidth * kChannels, 5);
    DepthwiseRows rows;
    rows.image = broken.data();
    rows.height = rows.kernel_h = 3;
    rows.width = rows.out_width = kWidth;
    rows.channels = kChannels;
    rows.left = -1;
    rows.filter = filter.data();
    rows.out = out.data();
    rows.relu = true;
    RunDepthwiseRows(rows, 3, 1);
    for (int64_t i = 0; i < kWidth * kChannels; ++i) {
      const float value = out[static_cast<size_t>(i)];
      const bool is_nan = std::abs(i / kChannels - at) <= 1;
      EXPECT_TRUE(is_nan ? std::isnan(value) : value == 0) << at << " " << i;
    }
  }
}

// A filter that is too large for the cache, for a few pixels.
TEST(Conv2d, LargePointwiseFastAgainstReference) {
  for (const char* name : {"", "relu", "hard_swish", "sigmoid"}) {
    for (const int64_t width : {1, 7, 30}) {
      ConvCase c{1, 500, 530, 1, 1, width, 1, 1, {1, 1}, {0, 0}, {1, 1}, "EXPLICIT", "NHWC", true};
      OpTest test = c.Test();
      test.Attr("fuse_activation", name);
      if (width == 7) test.RandomInput("ResidualData", {1, 1, width, 530});
      const Tensor want = test.Output("Output", KernelMode::kReference);
      const Tensor got = test.Output("Output");
      for (int64_t i = 0; i < want.numel(); ++i)
        ASSERT_NEAR(want.data<float>()[i], got.data<float>()[i], 1e-4f) << name << " " << i;
    }
  }
}

// One pixel of each image, as in the gates of squeeze and excitation.
TEST(Conv2d, GatesFastAgainstReference) {
  for (const char* name : {"", "relu", "hard_sigmoid"}) {
    for (const int64_t batch : {1, 2, 7, 8, 9}) {
      for (const auto& [channels, filters] : {std::pair<int64_t, int64_t>{500, 40}, {40, 530}}) {
        ConvCase c{batch, channels, filters, 1,      1,          1,      1,
                   1,     {1, 1},   {0, 0},  {1, 1}, "EXPLICIT", "NHWC", true};
        OpTest test = c.Test();
        test.Attr("fuse_activation", name);
        const Tensor want = test.Output("Output", KernelMode::kReference);
        const Tensor got = test.Output("Output");
        for (int64_t i = 0; i < want.numel(); ++i)
          ASSERT_NEAR(want.data<float>()[i], got.data<float>()[i], 5e-5f) << name << " " << i;
      }
    }
  }
}

TEST(Conv2d, PointwiseWithReluFastAgainstReference) {
  std::mt19937 random(19);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 30; ++trial) {
    ConvCase c{};
    c.batch = pick(1, 2);
    c.groups = c.kh = c.kw = 1;
    c.channels = pick(1, 130);
    c.filters = pick(10, 100);
    c.strides = c.dilations = {1, 1};
    c.paddings = {0, 0};
    c.algorithm = "EXPLICIT";
    c.format = "NHWC";
    c.height = pick(1, 6);
    c.width = pick(1, 12);
    c.bias = pick(0, 1);
    SCOPED_TRACE(::testing::Message() << trial << " " << c.Input().ToString() << " " << c.filters);
    OpTest test = c.Test();
    test.Attr("fuse_activation", "relu");
    if (trial % 3 == 0) test.RandomInput("ResidualData", c.Test().Output("Output").shape());
    test.CheckFast(2e-5);
    if (trial % 3) continue;
    const Tensor want = test.Output("Output");
    test.InPlace("ResidualData", "Output");
    const Tensor got = test.Output("Output");
    for (int64_t i = 0; i < want.numel(); ++i)
      ASSERT_EQ(want.data<float>()[i], got.data<float>()[i]);
  }
}

TEST(Conv2d, ResidualInPlace) {
  for (const char* format : {"NCHW", "NHWC"}) {
    for (const int64_t channels : {3, 16}) {
      ConvCase c{2, channels, 5, 1, 6, 7, 3, 3, {1, 1}, {0, 0}, {1, 1}, "EXPLICIT", format, true};
      OpTest test = c.Test();
      test.RandomInput("ResidualData", c.Test().Output("Output").shape());
      const Tensor want = test.Output("Output", KernelMode::kReference);
      test.InPlace("ResidualData", "Output");
      for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
        const Tensor got = test.Output("Output", mode);
        for (int64_t i = 0; i < want.numel(); ++i)
          ASSERT_NEAR(want.data<float>()[i], got.data<float>()[i], 1e-5f) << format << channels;
      }
    }
  }
}

TEST(Conv2d, ResidualStretches) {
  // Sums {1, 2, 3, 4}.
  const auto conv = [] {
    return std::move(OpTest("conv2d")
                         .Attr("fuse_activation", "relu")
                         .Input("Input", {1, 1, 2, 2}, {1, 2, 3, 4})
                         .Input("Filter", {1, 1, 1, 1}, {1}));
  };
  conv()
      .Input("ResidualData", {1, 1, 1, 2}, {-2, 10})
      .Expect("Output", {1, 1, 2, 2}, {0, 12, 1, 14});
  conv()
      .Input("ResidualData", {2, 1, 1, 1}, {0, -3})
      .Expect("Output", {2, 1, 2, 2}, {1, 2, 3, 4, 0, 0, 0, 1});
  ConvCase c{2, 2, 3, 1, 4, 4, 2, 2, {1, 1}, {0, 0}, {1, 1}, "EXPLICIT", "NCHW", true};
  c.Test().RandomInput("ResidualData", {1, 3, 1, 3}).CheckGradient({"Input", "ResidualData"});
}

TEST(Conv2d, GradientsOfActivations) {
  for (const char* name : {"tanh", "swish", "sigmoid", "gelu", "gelu_tanh"}) {
    ConvCase c{1, 2, 3, 1, 4, 4, 2, 2, {1, 1}, {0, 0}, {1, 1}, "EXPLICIT", "NCHW", true};
    c.Test()
        .Attr("fuse_activation", name)
        .Attr("fuse_alpha", 1.5f)
        .RandomInput("ResidualData", {1, 3, 3, 3})
        .CheckGradient({"Input", "Filter", "Bias", "ResidualData"});
  }
}

}  // namespace coracle::conv2d_activation_test
