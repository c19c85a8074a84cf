// Results of Caffe's layers, compared with loops written from Caffe's documentation and sources.

#include <coracle/test/convert/caffe_net.h>
#include <coracle/test/error_of.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace coracle::caffe::caffe_layers_test {

struct PoolCase {
  int64_t h, w, k, s, p;
  bool max;
};

// One channel of one image, as pooling_layer.cpp has it: the number of windows is rounded up and
// clipped, averages divide by the window cut to the padded image.
std::vector<double> PoolReference(const PoolCase& c, const float* x) {
  const auto windows = [&](int64_t in) {
    auto out = static_cast<int64_t>(
                   std::ceil(static_cast<double>(in + 2 * c.p - c.k) / static_cast<double>(c.s))) +
               1;
    if (c.p > 0 && (out - 1) * c.s >= in + c.p) --out;
    return out;
  };
  std::vector<double> result;
  for (int64_t i = 0; i < windows(c.h); ++i) {
    for (int64_t j = 0; j < windows(c.w); ++j) {
      int64_t y0 = i * c.s - c.p, x0 = j * c.s - c.p;
      int64_t y1 = std::min(y0 + c.k, c.h + c.p), x1 = std::min(x0 + c.k, c.w + c.p);
      const double area = static_cast<double>((y1 - y0) * (x1 - x0));
      y0 = std::max<int64_t>(y0, 0), x0 = std::max<int64_t>(x0, 0);
      y1 = std::min(y1, c.h), x1 = std::min(x1, c.w);
      double value = c.max ? -DBL_MAX : 0;
      for (int64_t y = y0; y < y1; ++y) {
        for (int64_t z = x0; z < x1; ++z) {
          const double v = static_cast<double>(x[y * c.w + z]);
          value = c.max ? std::max(value, v) : value + v;
        }
      }
      result.push_back(c.max ? value : value / area);
    }
  }
  return result;
}

TEST(CaffeLayers, PoolingIsCaffes) {
  int run = 0, refused = 0;
  for (const bool max : {true, false}) {
    for (int64_t h = 5; h <= 8; ++h) {
      for (int64_t w : {5, 6, 9}) {
        for (int64_t k = 2; k <= 4; ++k) {
          for (int64_t s = 1; s <= 4; ++s) {
            for (int64_t p = 0; p < k && p < 3; ++p) {
              if ((h * 7 + w * 5 + k * 3 + s * 2 + p) % 4 != 0) continue;  // a quarter of them
              const PoolCase c{h, w, k, s, p, max};
              const std::string text = OneLayer(
                  fmt::format("dim: 1 dim: 1 dim: {} dim: {}", h, w),
                  fmt::format("name: 'p' type: 'Pooling' bottom: 'data' top: 'p' pooling_param {{ "
                              "pool: {} kernel_size: {} stride: {} pad: {} }}",
                              max ? "MAX" : "AVE", k, s, p));
              SCOPED_TRACE(text);
              const std::string error = ErrorOf([&] { Import(text); });
              if (error != "no error") {
                ++refused;
                continue;
              }
              ++run;
              const Tensor x = Drawn({1, 1, h, w});
              ExpectNear(TestNet(text).Run({{"data", x}}, "p"), PoolReference(c, x.data<float>()));
            }
          }
        }
      }
    }
  }
  EXPECT_GT(run, 80);
  EXPECT_LT(refused, run / 8);
}

// Padding along one axis alone: Caffe leaves out a window past the image along either.
TEST(CaffeLayers, PoolingWithPaddingOfOneAxis) {
  const std::string text = OneLayer("dim: 1 dim: 1 dim: 4 dim: 4",
                                    "name: 'p' type: 'Pooling' bottom: 'data' top: 'p' "
                                    "pooling_param { kernel_h: 1 kernel_w: 4 stride_h: 4 stride_w: "
                                    "3 pad_h: 0 pad_w: 3 }");
  Tensor x(DType::kFloat32, {1, 1, 4, 4});
  for (int i = 0; i < 16; ++i) x.data<float>()[i] = static_cast<float>(i);
  const Tensor got = TestNet(text).Run({{"data", x}}, "p");
  EXPECT_EQ(got.shape(), (Shape{1, 1, 1, 3}));  // rows 0, and 4, which is past the image
  ExpectNear(got, {0, 3, 3});
}

// rows x time: the inferred first dim differs from the bottom's first dim.
TEST(CaffeLayers, ReshapeInfersTheFirstDim) {
  const std::string text =
      OneLayer("dim: 2 dim: 5 dim: 3",
               "name: 'r' type: 'Reshape' bottom: 'data' top: 'r' reshape_param { shape { dim: -1 "
               "dim: 3 } }");
  EXPECT_EQ(TestNet(text).Run({{"data", Drawn({2, 5, 3})}}, "r").shape(), (Shape{10, 3}));
}

TEST(CaffeLayers, LocalResponseAcrossChannels) {
  const std::string text =
      OneLayer("dim: 1 dim: 4 dim: 2 dim: 1",
               "name: 'n' type: 'LRN' bottom: 'data' top: 'n' lrn_param { local_size: 3 alpha: 0.6 "
               "beta: 0.5 k: 2 }");
  const Tensor x = Drawn({1, 4, 2, 1});
  std::vector<double> want;
  for (int c = 0; c < 4; ++c) {
    for (int i = 0; i < 2; ++i) {
      double sum = 0;
      for (int d = std::max(0, c - 1); d <= std::min(3, c + 1); ++d)
        sum += std::pow(static_cast<double>(x.data<float>()[d * 2 + i]), 2);
      want.push_back(static_cast<double>(x.data<float>()[c * 2 + i]) /
                     std::sqrt(2 + 0.6 / 3 * sum));
    }
  }
  ExpectNear(TestNet(text).Run({{"data", x}}, "n"), want);
}

TEST(CaffeLayers, LocalResponseWithinAChannel) {
  const std::string text = OneLayer("dim: 1 dim: 1 dim: 3 dim: 4",
                                    "name: 'n' type: 'LRN' bottom: 'data' top: 'n' lrn_param { "
                                    "local_size: 3 alpha: 0.9 beta: 0.75 norm_region: "
                                    "WITHIN_CHANNEL }");
  const Tensor x = Drawn({1, 1, 3, 4});
  std::vector<double> want;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) {
      double sum = 0;
      for (int y = std::max(0, i - 1); y <= std::min(2, i + 1); ++y)
        for (int z = std::max(0, j - 1); z <= std::min(3, j + 1); ++z)
          sum += std::pow(static_cast<double>(x.data<float>()[y * 4 + z]), 2);
      want.push_back(static_cast<double>(x.data<float>()[i * 4 + j]) *
                     std::pow(1 + 0.9 * sum / 9, -0.75));
    }
  }
  ExpectNear(TestNet(text).Run({{"data", x}}, "n"), want);
}

// out[o][y][x] = b[o] + sum of w x over the group's channels.
TEST(CaffeLayers, ConvolutionWithGroupsDilationAndTwoSizes) {
  TestNet net(OneLayer("dim: 1 dim: 4 dim: 7 dim: 6",
                       "name: 'c' type: 'Convolution' bottom: 'data' top: 'c' convolution_param { "
                       "num_output: 2 kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 "
                       "pad_w: 0 group: 2 dilation: 2 }"));
  const Tensor x = Drawn({1, 4, 7, 6}), w = Drawn({2, 2, 3, 2}, 2);
  net.scope.Set("c.w_0", w);
  net.scope.Set("c.b_0", Tensor::Of<float>({2}, {0.5f, -1.f}));
  const Tensor y = net.Run({{"data", x}}, "c");
  // (7 + 2 - 5) / 2 + 1 = 3 by (6 - 3) / 1 + 1 = 4
  ASSERT_EQ(y.shape(), (Shape{1, 2, 3, 4}));
  std::vector<double> want;
  for (int o = 0; o < 2; ++o) {
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 4; ++j) {
        double sum = o == 0 ? 0.5 : -1;
        for (int c = 0; c < 2; ++c) {
          for (int a = 0; a < 3; ++a) {
            for (int b = 0; b < 2; ++b) {
              const int row = i * 2 - 1 + a * 2, column = j + b * 2;
              if (row < 0 || row >= 7) continue;
              sum += static_cast<double>(w.data<float>()[((o * 2 + c) * 3 + a) * 2 + b]) *
                     static_cast<double>(x.data<float>()[((o * 2 + c) * 7 + row) * 6 + column]);
            }
          }
        }
        want.push_back(sum);
      }
    }
  }
  ExpectNear(y, want);
}

TEST(CaffeLayers, DeconvolutionSpreadsItsInput) {
  TestNet net(
      OneLayer("dim: 1 dim: 1 dim: 2 dim: 2",
               "name: 'd' type: 'Deconvolution' bottom: 'data' top: 'd' convolution_param { "
               "num_output: 1 kernel_size: 4 stride: 2 pad: 1 bias_term: false "
               "weight_filler { type: 'bilinear' } }"));
  const Tensor x = Tensor::Of<float>({1, 1, 2, 2}, {1.f, 2.f, 3.f, 4.f});
  const double k[] = {0.25, 0.75, 0.75, 0.25};  // the bilinear kernel for a factor of two
  std::vector<double> want(16, 0);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      for (int a = 0; a < 4; ++a) {
        for (int b = 0; b < 4; ++b) {
          const int y = i * 2 - 1 + a, z = j * 2 - 1 + b;
          if (y < 0 || y > 3 || z < 0 || z > 3) continue;
          want[static_cast<size_t>(y * 4 + z)] +=
              k[a] * k[b] * static_cast<double>(x.data<float>()[i * 2 + j]);
        }
      }
    }
  }
  ExpectNear(net.Run({{"data", x}}, "d"), want);
}

TEST(CaffeLayers, ElementwiseFormulas) {
  const auto value = [](const std::string& layer, float x) {
    TestNet net(OneLayer("dim: 1 dim: 1", "name: 'y' bottom: 'data' top: 'y' " + layer));
    return static_cast<double>(
        net.Run({{"data", Tensor::Of<float>({1, 1}, {x})}}, "y").data<float>()[0]);
  };
  EXPECT_NEAR(value("type: 'Power' power_param { power: 2 scale: 3 shift: 1 }", 0.5f), 6.25, 1e-5);
  EXPECT_NEAR(value("type: 'Power' power_param { scale: -1 shift: 2 }", 0.5f), 1.5, 1e-6);
  EXPECT_NEAR(value("type: 'Exp' exp_param { base: 2 scale: 3 shift: 1 }", 0.5f), std::pow(2, 2.5),
              1e-4);
  EXPECT_NEAR(value("type: 'Log' log_param { base: 10 scale: 2 shift: 3 }", 0.5f), std::log10(4),
              1e-6);
  EXPECT_NEAR(value("type: 'BNLL'", -0.5f), std::log1p(std::exp(-0.5)), 1e-6);
  EXPECT_NEAR(value("type: 'ReLU' relu_param { negative_slope: 0.25 }", -2), -0.5, 1e-6);
  EXPECT_NEAR(value("type: 'ELU' elu_param { alpha: 2 }", -1), 2 * std::expm1(-1.), 1e-6);
  EXPECT_NEAR(value("type: 'AbsVal'", -2), 2, 1e-6);
  EXPECT_NEAR(value("type: 'Threshold' threshold_param { threshold: 0.5 }", 0.5f), 0, 0);
  EXPECT_NEAR(value("type: 'Threshold' threshold_param { threshold: 0.5 }", 0.6f), 1, 0);
  EXPECT_NEAR(value("type: 'PReLU'", -2), -0.5, 1e-6);  // slopes begin at 0.25
  EXPECT_NEAR(value("type: 'Dropout'", -2), -2, 0);     // in tests
  EXPECT_NEAR(value("type: 'Clip' clip_param { min: -1 max: 1 }", -2), -1, 0);
}

TEST(CaffeLayers, DropoutScalesWhileTraining) {
  TestNet net(OneLayer("dim: 1 dim: 1000",
                       "name: 'y' type: 'Dropout' bottom: 'data' top: 'y' dropout_param { "
                       "dropout_ratio: 0.75 }"),
              true);
  const Tensor y = net.Run({{"data", Tensor::Full<float>({1, 1000}, 1)}}, "y");
  int kept = 0;
  for (const float v : y.span<float>()) {
    EXPECT_TRUE(v == 0 || std::abs(v - 4) < 1e-5f) << v;
    kept += v != 0;
  }
  EXPECT_NEAR(kept, 250, 60);
}

TEST(CaffeLayers, EltwiseWithCoefficients) {
  TestNet net(
      "layer { name: 'in' type: 'Input' top: 'a' top: 'b' top: 'c' input_param { shape { dim: 1 "
      "dim: 2 } } }"
      "layer { name: 's' type: 'Eltwise' bottom: 'a' bottom: 'b' bottom: 'c' top: 's' "
      "eltwise_param { coeff: 1 coeff: -2 coeff: 0.5 } }"
      "layer { name: 'm' type: 'Eltwise' bottom: 'a' bottom: 'b' top: 'm' eltwise_param { "
      "operation: MAX } }"
      "layer { name: 'p' type: 'Eltwise' bottom: 'm' bottom: 's' bottom: 'c' top: 'p' "
      "eltwise_param { operation: PROD } }");
  const std::map<std::string, Tensor> feeds = {{"a", Tensor::Of<float>({1, 2}, {1.f, 2.f})},
                                               {"b", Tensor::Of<float>({1, 2}, {3.f, -1.f})},
                                               {"c", Tensor::Of<float>({1, 2}, {4.f, 6.f})}};
  ExpectNear(net.Run(feeds, "s"), {1 - 6 + 2, 2 + 2 + 3});
  ExpectNear(net.Run(feeds, "p"), {3 * -3 * 4, 2 * 7 * 6});
}

TEST(CaffeLayers, ShapesOfSlicesReshapesAndReductions) {
  TestNet net(
      "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 6 dim: 2 dim: 2 "
      "} } }"
      "layer { name: 's' type: 'Slice' bottom: 'x' top: 'a' top: 'b' slice_param { slice_point: 2 "
      "} }"
      "layer { name: 'f' type: 'Flatten' bottom: 'a' top: 'f' }"
      "layer { name: 'r' type: 'Reshape' bottom: 'b' top: 'r' reshape_param { shape { dim: 0 dim: "
      "8 dim: -1 } } }"
      "layer { name: 'q' type: 'Reshape' bottom: 'b' top: 'q' reshape_param { shape { dim: -1 } "
      "axis: 1 num_axes: 2 } }"
      "layer { name: 'd' type: 'Reduction' bottom: 'a' top: 'd' reduction_param { operation: SUMSQ "
      "axis: 1 coeff: 2 } }"
      "layer { name: 't' type: 'Tile' bottom: 'f' top: 't' tile_param { tiles: 2 } }"
      "layer { name: 'k' type: 'Crop' bottom: 'x' bottom: 'b' top: 'k' crop_param { axis: 1 "
      "offset: 1 offset: 0 offset: 0 } }"
      "layer { name: 'm' type: 'ArgMax' bottom: 'f' top: 'm' argmax_param { axis: 1 } }");
  const Tensor x = Drawn({3, 6, 2, 2});
  const std::map<std::string, Tensor> feeds = {{"x", x}};
  EXPECT_EQ(net.Run(feeds, "f").shape(), (Shape{3, 8}));
  EXPECT_EQ(net.Run(feeds, "r").shape(), (Shape{3, 8, 2}));
  EXPECT_EQ(net.Run(feeds, "q").shape(), (Shape{3, 8, 2}));
  EXPECT_EQ(net.Run(feeds, "t").shape(), (Shape{3, 16}));
  const Tensor k = net.Run(feeds, "k");
  EXPECT_EQ(k.shape(), (Shape{3, 4, 2, 2}));
  EXPECT_EQ(k.data<float>()[0], x.data<float>()[4]);  // channel 1
  std::vector<double> squares, places;
  for (int n = 0; n < 3; ++n) {
    const float* row = x.data<float>() + n * 24;
    double sum = 0;
    for (int i = 0; i < 8; ++i) sum += 2 * std::pow(static_cast<double>(row[i]), 2);
    squares.push_back(sum);
    places.push_back(static_cast<double>(std::max_element(row, row + 8) - row));
  }
  ExpectNear(net.Run(feeds, "d"), squares);
  ExpectNear(net.Run(feeds, "m"), places);
}

// argmax_layer.cpp: without axis as many dims as the bottom has, at least 3.
TEST(CaffeLayers, ArgMaxOfASampleHasAsManyDims) {
  const std::string reshape =
      "layer { name: 'r' type: 'Reshape' bottom: 'm' top: 'r' reshape_param { shape { dim: 0 dim: "
      "0 dim: 0 dim: 0 } } }";
  const std::string max = "name: 'm' type: 'ArgMax' bottom: 'data' top: 'm'";
  TestNet images(OneLayer("dim: 1 dim: 3 dim: 2 dim: 2", max) + reshape);
  const Tensor x = Drawn({2, 3, 2, 2});
  const Tensor got = images.Run({{"data", x}}, "r");
  EXPECT_EQ(got.shape(), (Shape{2, 1, 1, 1}));
  std::vector<double> places;
  for (int n = 0; n < 2; ++n) {
    const float* row = x.data<float>() + n * 12;
    places.push_back(static_cast<double>(std::max_element(row, row + 12) - row));
  }
  ExpectNear(got, places);
  TestNet rows(OneLayer("dim: 1 dim: 4", max));
  EXPECT_EQ(rows.Run({{"data", Drawn({2, 4})}}, "m").shape(), (Shape{2, 1, 1}));
}

// argmax_layer.cpp sorts pairs of value and place, both from the largest on.
TEST(CaffeLayers, ArgMaxTakesTheLastOfEqualValues) {
  const auto run = [](const std::string& param) {
    TestNet net(OneLayer(
        "dim: 1 dim: 2 dim: 4",
        "name: 'm' type: 'ArgMax' bottom: 'data' top: 'm' argmax_param { " + param + " }"));
    return net.Run({{"data", Tensor::Of<float>({1, 2, 4}, {5, 7, 7, 1, 2, 7, 2, 2})}}, "m");
  };
  EXPECT_EQ(run("").shape(), (Shape{1, 1, 1}));
  ExpectNear(run(""), {5});
  EXPECT_EQ(run("top_k: 4").shape(), (Shape{1, 1, 4}));
  ExpectNear(run("top_k: 4"), {5, 2, 1, 0});
  EXPECT_EQ(run("top_k: 2 out_max_val: true").shape(), (Shape{1, 2, 2}));
  ExpectNear(run("top_k: 2 out_max_val: true"), {5, 2, 7, 7});
  EXPECT_EQ(run("axis: -1 top_k: 2").shape(), (Shape{1, 2, 2}));
  ExpectNear(run("axis: -1 top_k: 2"), {2, 1, 1, 3});
  ExpectNear(run("axis: 1"), {0, 1, 0, 1});
  ExpectNear(run("axis: 1 out_max_val: true"), {5, 7, 7, 2});
  EXPECT_NE(ErrorOf([&] { run("top_k: 9"); }).find("top_k must lie in [1, 8], got 9"),
            std::string::npos);
}

// eltwise_layer.cpp: the second of two equal bottoms gets the gradient, a third one only where it
// is larger. In elementwise_max y gets it where both are equal.
TEST(CaffeLayers, EltwiseMaxOfThreePrefersTheSecondThenTheEarlier) {
  const ImportedNet net = Import(
      "layer { name: 'in' type: 'Input' top: 'a' top: 'b' top: 'c' input_param { shape { dim: 1 "
      "dim: 2 } } }"
      "layer { name: 'm' type: 'Eltwise' bottom: 'a' bottom: 'b' bottom: 'c' top: 'm' "
      "eltwise_param { operation: MAX } }");
  for (const char* entry : {"elementwise_max { x: \"a\" y: \"b\" output: \"m.partial\" }",
                            "elementwise_max { x: \"c\" y: \"m.partial\" output: \"m\" }"})
    EXPECT_NE(net.text.find(entry), std::string::npos) << net.text;
}

// A parameter that covers the batch has the size that the text gives.
TEST(CaffeLayers, ScaleOfTheWholeBatch) {
  TestNet net(OneLayer("dim: 2 dim: 3",
                       "name: 's' type: 'Scale' bottom: 'data' top: 's' scale_param { axis: 0 "
                       "num_axes: -1 bias_term: true bias_filler { value: 0.5 } }"));
  ExpectNear(net.Run({{"data", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6})}}, "s"),
             {1.5, 2.5, 3.5, 4.5, 5.5, 6.5});
}

TEST(CaffeLayers, PoolingPastTheImageSaysWhatCaffeGives) {
  for (const auto& [pool, gives] :
       {std::pair{"MAX", "gives -FLT_MAX"},
        std::pair{"AVE", "divides a sum of 0 by a size that is not positive"}}) {
    const std::string text =
        OneLayer("dim: 1 dim: 1 dim: 6 dim: 6",
                 fmt::format("name: 'p' type: 'Pooling' bottom: 'data' top: 'p' pooling_param {{ "
                             "pool: {} kernel_size: 1 stride: 2 }}",
                             pool));
    EXPECT_NE(ErrorOf([&] {
                Import(text);
              }).find(fmt::format("there Caffe {}; round_mode: FLOOR leaves it out", gives)),
              std::string::npos);
  }
}

// A shape without dims is one number.
TEST(CaffeLayers, ReshapeOfABlobWithoutDims) {
  const ImportedNet net =
      Import(OneLayer("",
                      "name: 'r' type: 'Reshape' bottom: 'data' top: 'y' reshape_param { shape { "
                      "dim: 1 dim: 1 } }"));
  EXPECT_NE(net.text.find("reshape { input: \"data\" shape: [1, 1] output: \"y\" }"),
            std::string::npos)
      << net.text;
}

TEST(CaffeLayers, MeanVarianceNormalisation) {
  const std::string text =
      OneLayer("dim: 1 dim: 2 dim: 2 dim: 2",
               "name: 'y' type: 'MVN' bottom: 'data' top: 'y' mvn_param { eps: "
               "0.5 }");
  const Tensor x = Drawn({1, 2, 2, 2});
  std::vector<double> want;
  for (int c = 0; c < 2; ++c) {
    const float* v = x.data<float>() + c * 4;
    double mean = 0, variance = 0;
    for (int i = 0; i < 4; ++i) mean += static_cast<double>(v[i]) / 4;
    for (int i = 0; i < 4; ++i) variance += std::pow(static_cast<double>(v[i]) - mean, 2) / 4;
    for (int i = 0; i < 4; ++i)
      want.push_back((static_cast<double>(v[i]) - mean) / (std::sqrt(variance) + 0.5));
  }
  ExpectNear(TestNet(text).Run({{"data", x}}, "y"), want);
}

TEST(CaffeLayers, ScaleAndBiasAlongAnAxis) {
  TestNet net(OneLayer("dim: 1 dim: 2 dim: 3",
                       "name: 's' type: 'Scale' bottom: 'data' top: 's' scale_param { bias_term: "
                       "true }") +
              "layer { name: 'b' type: 'Bias' bottom: 's' top: 'b' bias_param { axis: 2 } }");
  net.scope.Set("s.w_0", Tensor::Of<float>({2}, {2.f, 3.f}));
  net.scope.Set("s.b_0", Tensor::Of<float>({2}, {10.f, 20.f}));
  net.scope.Set("b.w_0", Tensor::Of<float>({3}, {.1f, .2f, .3f}));
  const Tensor x = Tensor::Of<float>({1, 2, 3}, {1.f, 2.f, 3.f, 4.f, 5.f, 6.f});
  ExpectNear(net.Run({{"data", x}}, "b"), {12.1, 14.2, 16.3, 32.1, 35.2, 38.3});
}

}  // namespace coracle::caffe::caffe_layers_test
