// Layers of other versions of Caffe (SegNet, PSPNet, SENet, ShuffleNet, SSD, YOLO), compared with
// loops written from their sources.

#include <coracle/proto/caffe.pb.h>
#include <coracle/test/convert/caffe_net.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>

#include <algorithm>
#include <cmath>

namespace coracle::caffe::caffe_fork_layers_test {

double At(const Tensor& x, int64_t i) { return static_cast<double>(x.data<float>()[i]); }

std::string DimText(const Shape& shape) {
  std::string text;
  for (const int64_t dim : shape) text += fmt::format("dim: {} ", dim);
  return text;
}

std::string Input(const std::string& name, const Shape& shape) {
  return "layer { name: '" + name + "' type: 'Input' top: '" + name + "' input_param { shape { " +
         DimText(shape) + "} } } ";
}

// A net of one layer on drawn elements of that shape.
std::string Single(const Shape& shape, const std::string& type, const std::string& param = "") {
  return OneLayer(DimText(shape),
                  "name: 'y' type: '" + type + "' bottom: 'data' top: 'y' " + param);
}

void Check(const Shape& shape, const std::string& type, const std::string& param,
           const Shape& result, const std::vector<double>& want, double tolerance = 1e-5) {
  SCOPED_TRACE(type + " " + param);
  const Tensor got = TestNet(Single(shape, type, param)).Run({{"data", Drawn(shape)}}, "y");
  EXPECT_EQ(got.shape(), result);
  ExpectNear(got, want, tolerance);
}

std::string Refusal(const Shape& shape, const std::string& type, const std::string& param = "") {
  return ErrorOf([&] { Import(Single(shape, type, param)); });
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// --- moves ---

TEST(CaffeForks, PermuteKeepsTheOtherAxesInOrder) {
  const Tensor x = Drawn({2, 3, 4, 5});
  std::vector<double> want, moved;
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t w = 0; w < 5; ++w)
        for (int64_t c = 0; c < 3; ++c) want.push_back(At(x, ((n * 3 + c) * 4 + h) * 5 + w));
    for (int64_t w = 0; w < 5; ++w)
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t h = 0; h < 4; ++h) moved.push_back(At(x, ((n * 3 + c) * 4 + h) * 5 + w));
  }
  Check({2, 3, 4, 5}, "Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }",
        {2, 4, 5, 3}, want, 0);
  Check({2, 3, 4, 5}, "Permute", "permute_param { order: 0 order: 3 }", {2, 5, 3, 4}, moved, 0);
  EXPECT_TRUE(Contains(Refusal({1, 2}, "Permute", "permute_param { order: 0 order: 0 }"),
                       "order must name different axes"));
  EXPECT_TRUE(
      Contains(Refusal({1, 2}, "Permute", "permute_param { order: 4 }"), "order must name"));
}

TEST(CaffeForks, ShuffleChannel) {
  const Tensor x = Drawn({2, 6, 1, 3});
  std::vector<double> want;
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t j = 0; j < 2; ++j)
      for (int64_t i = 0; i < 3; ++i)
        for (int64_t w = 0; w < 3; ++w) want.push_back(At(x, (n * 6 + i * 2 + j) * 3 + w));
  Check({2, 6, 1, 3}, "ShuffleChannel", "shuffle_channel_param { group: 3 }", {2, 6, 1, 3}, want,
        0);
  EXPECT_TRUE(
      Contains(Refusal({1, 6, 2, 2}, "ShuffleChannel", "shuffle_channel_param { group: 4 }"),
               "group 4 must divide the 6 channels"));
}

TEST(CaffeForks, FlipAndReverse) {
  const Tensor x = Drawn({1, 2, 2, 3});
  std::vector<double> both, wide;
  for (int64_t c = 0; c < 2; ++c)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t w = 0; w < 3; ++w) {
        both.push_back(At(x, (c * 2 + 1 - h) * 3 + 2 - w));
        wide.push_back(At(x, (c * 2 + h) * 3 + 2 - w));
      }
  Check({1, 2, 2, 3}, "Flip", "flip_param { flip_width: true flip_height: true }", {1, 2, 2, 3},
        both, 0);
  Check({1, 2, 2, 3}, "Flip", "flip_param { flip_width: true flip_height: false }", {1, 2, 2, 3},
        wide, 0);
  Check({1, 2, 2, 3}, "Reverse", "reverse_param { axis: -1 axis: 2 }", {1, 2, 2, 3}, both, 0);
  EXPECT_TRUE(Contains(Refusal({1, 2, 2, 3}, "Flip"), "give flip_width and flip_height"));
}

// reorg_cpu of YOLO: the copy writes in the order of the bottom's loops.
TEST(CaffeForks, Reorg) {
  constexpr int64_t kC = 8, kH = 4, kW = 6, kS = 2;
  const Tensor x = Drawn({2, kC, kH, kW});
  std::vector<double> want(static_cast<size_t>(x.numel()));
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t k = 0; k < kC; ++k) {
      for (int64_t j = 0; j < kH; ++j) {
        for (int64_t i = 0; i < kW; ++i) {
          const int64_t less = kC / (kS * kS), c2 = k % less, offset = k / less;
          const int64_t w2 = i * kS + offset % kS, h2 = j * kS + offset / kS;
          const int64_t from = i + kW * (j + kH * (k + kC * b));
          want[static_cast<size_t>(w2 + kW * kS * (h2 + kH * kS * (c2 + less * b)))] = At(x, from);
        }
      }
    }
  }
  Check({2, kC, kH, kW}, "Reorg", "reorg_param { stride: 2 }", {2, 32, 2, 3}, want, 0);
  EXPECT_TRUE(Contains(Refusal({1, 4, 3, 4}, "Reorg", "reorg_param { stride: 2 }"), "must divide"));
  EXPECT_TRUE(Contains(Refusal({1, 4, 4, 4}, "Reorg", "reorg_param { stride: 2 reverse: true }"),
                       "only reverse: false"));
}

// --- sizes ---

// interp.cpp: corners on corners, in a part of the image.
std::vector<double> Interp(const Tensor& x, int64_t begin, int64_t h, int64_t w, int64_t oh,
                           int64_t ow) {
  const int64_t planes = x.shape()[0] * x.shape()[1], height = x.shape()[2], width = x.shape()[3];
  std::vector<double> out;
  for (int64_t p = 0; p < planes; ++p) {
    for (int64_t i = 0; i < oh; ++i) {
      for (int64_t j = 0; j < ow; ++j) {
        const double y =
            oh > 1 ? static_cast<double>(i * (h - 1)) / static_cast<double>(oh - 1) : 0;
        const double z =
            ow > 1 ? static_cast<double>(j * (w - 1)) / static_cast<double>(ow - 1) : 0;
        const auto y0 = static_cast<int64_t>(y), z0 = static_cast<int64_t>(z);
        const int64_t y1 = std::min(y0 + 1, h - 1), z1 = std::min(z0 + 1, w - 1);
        const double a = y - static_cast<double>(y0), b = z - static_cast<double>(z0);
        const auto at = [&](int64_t r, int64_t c) {
          return At(x, (p * height + r + begin) * width + c + begin);
        };
        out.push_back((1 - a) * ((1 - b) * at(y0, z0) + b * at(y0, z1)) +
                      a * ((1 - b) * at(y1, z0) + b * at(y1, z1)));
      }
    }
  }
  return out;
}

TEST(CaffeForks, Interp) {
  const Tensor x = Drawn({2, 2, 5, 7});
  const auto check = [&](const std::string& param, int64_t begin, int64_t h, int64_t w, int64_t oh,
                         int64_t ow) {
    Check({2, 2, 5, 7}, "Interp", "interp_param { " + param + " }", {2, 2, oh, ow},
          Interp(x, begin, h, w, oh, ow));
  };
  check("height: 9 width: 4", 0, 5, 7, 9, 4);
  check("height: 1 width: 1", 0, 5, 7, 1, 1);
  check("height: 5 width: 7", 0, 5, 7, 5, 7);
  check("zoom_factor: 3", 0, 5, 7, 13, 19);
  check("shrink_factor: 2", 0, 5, 7, 3, 4);
  check("shrink_factor: 2 zoom_factor: 2", 0, 5, 7, 5, 7);
  check("height: 6 width: 8 pad_beg: -1 pad_end: -2", 1, 2, 4, 6, 8);
  EXPECT_TRUE(Contains(Refusal({1, 1, 3, 3}, "Interp", "interp_param { height: 3 }"), "it needs"));
  EXPECT_TRUE(
      Contains(Refusal({1, 1, 3, 3}, "Interp", "interp_param { zoom_factor: 2 pad_beg: 1 }"),
               "must not be positive"));
  EXPECT_TRUE(Contains(
      Refusal({1, 1, 3, 3}, "Interp", "interp_param { zoom_factor: 2 pad_beg: -2 pad_end: -1 }"),
      "nothing is left"));
}

TEST(CaffeForks, UpsampleOfNearestElements) {
  const Tensor x = Drawn({1, 2, 2, 3});
  std::vector<double> want;
  for (int64_t c = 0; c < 2; ++c)
    for (int64_t h = 0; h < 6; ++h)
      for (int64_t w = 0; w < 9; ++w) want.push_back(At(x, (c * 2 + h / 3) * 3 + w / 3));
  Check({1, 2, 2, 3}, "Upsample", "upsample_param { scale: 3 }", {1, 2, 6, 9}, want, 0);
  EXPECT_TRUE(Contains(Refusal({1, 1, 2, 2}, "Upsample",
                               "upsample_param { upsample_h: 3 "
                               "upsample_w: 4 }"),
                       "without a mask"));
}

struct MaskCase {
  int64_t h, w, kernel, stride, pad;
};

// SegNet: pooling with the positions of its maxima, and elements put back to them.
TEST(CaffeForks, PoolingWithAMaskAndUpsample) {
  for (const MaskCase& c :
       {MaskCase{4, 6, 2, 2, 0}, MaskCase{5, 7, 2, 2, 0}, MaskCase{5, 6, 2, 2, 0},
        MaskCase{6, 5, 3, 2, 1}, MaskCase{7, 8, 3, 2, 0}, MaskCase{7, 9, 3, 3, 1},
        MaskCase{5, 5, 3, 2, 1}}) {
    SCOPED_TRACE(fmt::format("{} x {}, {} {} {}", c.h, c.w, c.kernel, c.stride, c.pad));
    const std::string text = fmt::format(
        "{} layer {{ name: 'p' type: 'Pooling' bottom: 'data' top: 'p' top: 'm' pooling_param {{ "
        "kernel_size: {} stride: {} pad: {} }} }} layer {{ name: 'u' type: 'Upsample' bottom: 'p' "
        "bottom: 'm' top: 'u' upsample_param {{ upsample_h: {} upsample_w: {} }} }}",
        Input("data", {2, 2, c.h, c.w}), c.kernel, c.stride, c.pad, c.h, c.w);
    const Tensor x = Drawn({2, 2, c.h, c.w});
    const auto windows = [&](int64_t in) {
      int64_t out = (in + 2 * c.pad - c.kernel + c.stride - 1) / c.stride + 1;
      if (c.pad > 0 && (out - 1) * c.stride >= in + c.pad) --out;
      return out;
    };
    std::vector<double> pooled, back(static_cast<size_t>(x.numel()), 0), mask;
    for (int64_t plane = 0; plane < 4; ++plane) {
      for (int64_t i = 0; i < windows(c.h); ++i) {
        for (int64_t j = 0; j < windows(c.w); ++j) {
          int64_t best = -1;
          for (int64_t y = i * c.stride - c.pad; y < i * c.stride - c.pad + c.kernel; ++y)
            for (int64_t z = j * c.stride - c.pad; z < j * c.stride - c.pad + c.kernel; ++z)
              if (y >= 0 && y < c.h && z >= 0 && z < c.w &&
                  (best < 0 ||
                   At(x, plane * c.h * c.w + y * c.w + z) > At(x, plane * c.h * c.w + best)))
                best = y * c.w + z;
          mask.push_back(static_cast<double>(best));
          pooled.push_back(At(x, plane * c.h * c.w + best));
          back[static_cast<size_t>(plane * c.h * c.w + best)] = pooled.back();
        }
      }
    }
    TestNet net(text);
    const std::map<std::string, Tensor> feeds = {{"data", x}};
    ExpectNear(net.Run(feeds, "p"), pooled, 0);
    ExpectNear(net.Run(feeds, "u"), back, 0);
    ExpectNear(net.Run(feeds, "m").Cast(DType::kFloat32), mask, 0);
    // Read by another layer too, the mask has Caffe's floats.
    TestNet open(text + "layer { name: 'a' type: 'AbsVal' bottom: 'm' top: 'a' }");
    ExpectNear(open.Run(feeds, "a"), mask, 0);
    ExpectNear(open.Run(feeds, "u"), back, 0);
  }
}

TEST(CaffeForks, UpsampleSizes) {
  const auto dims = [](const std::string& param) {
    const ImportedNet net =
        Import(Input("p", {1, 1, 3, 4}) + Input("m", {1, 1, 3, 4}) +
               "layer { name: 'u' type: 'Upsample' bottom: 'p' bottom: 'm' top: "
               "'u' upsample_param { " +
               param + " } }");
    const ModelState state;
    const BuiltModel model = ParseModelText(net.text, "n", ".", DefaultOps(), state);
    const Shape shape = model.main.Root().FindVar("u")->shape();
    return std::pair{shape[2], shape[3]};
  };
  EXPECT_EQ(dims(""), (std::pair<int64_t, int64_t>{6, 8}));
  EXPECT_EQ(dims("scale: 2 pad_out_h: true"), (std::pair<int64_t, int64_t>{5, 8}));
  EXPECT_EQ(dims("scale_h: 2 scale_w: 3"), (std::pair<int64_t, int64_t>{6, 12}));
  EXPECT_EQ(dims("upsample_h: 7 upsample_w: 9"), (std::pair<int64_t, int64_t>{7, 9}));
  EXPECT_NE(ErrorOf([&] { dims("scale: 3 pad_out_w: true"); }), "no error");
  EXPECT_NE(ErrorOf([&] { dims("upsample_h: 2 upsample_w: 9"); }), "no error");
}

// --- windows ---

TEST(CaffeForks, CeilModeFalseRoundsDown) {
  const Tensor x = Drawn({1, 1, 6, 6});
  std::vector<double> want;
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 2; ++j) {
      double best = -2;
      for (int64_t y = 2 * i; y < 2 * i + 3; ++y)
        for (int64_t z = 2 * j; z < 2 * j + 3; ++z) best = std::max(best, At(x, y * 6 + z));
      want.push_back(best);
    }
  const std::string window = "pooling_param { kernel_size: 3 stride: 2 ";
  Check({1, 1, 6, 6}, "Pooling", window + "ceil_mode: false }", {1, 1, 2, 2}, want, 0);
  const auto result = [&](const std::string& param) {
    return TestNet(Single({1, 1, 6, 6}, "Pooling", window + param)).Run({{"data", x}}, "y").shape();
  };
  EXPECT_EQ(result("ceil_mode: true }"), (Shape{1, 1, 3, 3}));
  EXPECT_EQ(result("}"), (Shape{1, 1, 3, 3}));
  EXPECT_EQ(result("ceil_mode: true round_mode: FLOOR }"), (Shape{1, 1, 2, 2}));
}

TEST(CaffeForks, DepthwiseConvolutions) {
  for (const char* type : {"ConvolutionDepthwise", "DepthwiseConvolution"}) {
    for (const char* group : {"", "group: 3"}) {
      TestNet net(Single({2, 3, 5, 4}, type,
                         std::string("convolution_param { num_output: 3 kernel_size: 3 stride: 2 "
                                     "pad: 1 weight_filler { type: 'xavier' } ") +
                             group + " }"));
      const Tensor x = Drawn({2, 3, 5, 4});
      const Tensor& w = net.scope.Get("y.w_0");
      EXPECT_EQ(w.shape(), (Shape{3, 1, 3, 3}));
      std::vector<double> want;
      for (int64_t plane = 0; plane < 6; ++plane)
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t j = 0; j < 2; ++j) {
            double sum = 0;
            for (int64_t k = 0; k < 9; ++k) {
              const int64_t y = 2 * i - 1 + k / 3, z = 2 * j - 1 + k % 3;
              if (y >= 0 && y < 5 && z >= 0 && z < 4)
                sum += At(w, plane % 3 * 9 + k) * At(x, plane * 20 + y * 4 + z);
            }
            want.push_back(sum);
          }
      ExpectNear(net.Run({{"data", x}}, "y"), want);
    }
    EXPECT_TRUE(Contains(Refusal({1, 3, 5, 4}, type,
                                 "convolution_param { num_output: 6 "
                                 "kernel_size: 3 }"),
                         "must be the 3 channels"));
  }
}

TEST(CaffeForks, HoleIsDilation) {
  const std::string param = "convolution_param { num_output: 1 kernel_size: 3 ";
  EXPECT_EQ(Import(Single({1, 1, 9, 9}, "Convolution", param + "hole: 2 }")).text,
            Import(Single({1, 1, 9, 9}, "Convolution", param + "dilation: 2 }")).text);
  EXPECT_EQ(Import(Single({1, 1, 9, 9}, "Convolution", param + "hole_h: 2 hole_w: 3 }")).text,
            Import(Single({1, 1, 9, 9}, "Convolution", param + "dilation: 2 dilation: 3 }")).text);
}

// --- elements ---

TEST(CaffeForks, Axpy) {
  for (const Shape& factor : {Shape{2, 3, 1, 1}, Shape{2, 3}}) {
    TestNet net(Input("a", factor) + Input("x", {2, 3, 2, 5}) + Input("y", {2, 3, 2, 5}) +
                "layer { name: 's' type: 'Axpy' bottom: 'a' bottom: 'x' bottom: 'y' top: 's' }");
    const Tensor a = Drawn(factor), x = Drawn({2, 3, 2, 5}, 2), y = Drawn({2, 3, 2, 5}, 3);
    std::vector<double> want;
    for (int64_t i = 0; i < 60; ++i) want.push_back(At(a, i / 10) * At(x, i) + At(y, i));
    ExpectNear(net.Run({{"a", a}, {"x", x}, {"y", y}}, "s"), want);
  }
}

TEST(CaffeForks, Relu6) {
  TestNet net(Single({1, 5}, "ReLU6"));
  const Tensor x = Tensor::Of<float>({1, 5}, {-1.f, 0.f, 3.f, 6.f, 7.f});
  ExpectNear(net.Run({{"data", x}}, "y"), {0, 0, 3, 6, 6}, 0);
}

TEST(CaffeForks, DropoutThatScalesInTests) {
  const std::string param = "dropout_param { dropout_ratio: 0.25 scale_train: false }";
  const Tensor x = Drawn({2, 50});
  std::vector<double> want;
  for (int64_t i = 0; i < 100; ++i) want.push_back(At(x, i) * 0.75);
  Check({2, 50}, "Dropout", param, {2, 50}, want);
  const Tensor trained = TestNet(Single({2, 50}, "Dropout", param), true).Run({{"data", x}}, "y");
  int64_t kept = 0;
  for (int64_t i = 0; i < 100; ++i) {
    kept += At(trained, i) != 0;
    EXPECT_TRUE(At(trained, i) == 0 || At(trained, i) == At(x, i));
  }
  EXPECT_GT(kept, 50);
  EXPECT_LT(kept, 95);
  EXPECT_TRUE(Contains(Refusal({1, 2}, "Dropout", "dropout_param { sample_weights_test: true }"),
                       "dropout in tests"));
}

// --- normalization ---

TEST(CaffeForks, Normalize) {
  const Tensor x = Drawn({2, 3, 2, 2});
  const auto want = [&](bool across, const std::vector<double>& scale) {
    std::vector<double> result;
    for (int64_t i = 0; i < 24; ++i) {
      double sum = 1e-10;
      for (int64_t k = 0; k < 12; ++k)
        if (across || k % 4 == i % 4) sum += std::pow(At(x, i / 12 * 12 + k), 2);
      result.push_back(At(x, i) / std::sqrt(sum) * scale[static_cast<size_t>(i / 4 % 3)]);
    }
    return result;
  };
  Check({2, 3, 2, 2}, "Normalize", "", {2, 3, 2, 2}, want(true, {1, 1, 1}));
  Check({2, 3, 2, 2}, "Normalize", "norm_param { scale_filler { type: 'constant' value: 20 } }",
        {2, 3, 2, 2}, want(true, {20, 20, 20}), 1e-4);
  TestNet net(Single({2, 3, 2, 2}, "Normalize",
                     "norm_param { across_spatial: false channel_shared: false }"));
  net.scope.Set("y.w_0", Tensor::Of<float>({3}, {2.f, 3.f, 5.f}));
  ExpectNear(net.Run({{"data", x}}, "y"), want(false, {2, 3, 5}));
}

// Normalized by the statistics of the batch.
std::vector<double> Normalized(const Tensor& x, double eps) {
  const int64_t n = x.shape()[0], c = x.shape()[1], size = x.numel() / n / c;
  std::vector<double> out(static_cast<size_t>(x.numel()));
  for (int64_t k = 0; k < c; ++k) {
    double sum = 0, square = 0;
    const auto count = static_cast<double>(n * size);
    const auto each = [&](auto&& f) {
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < size; ++j) f((i * c + k) * size + j);
    };
    each([&](int64_t at) { sum += At(x, at) / count; });
    each([&](int64_t at) { square += std::pow(At(x, at) - sum, 2) / count; });
    each([&](int64_t at) {
      out[static_cast<size_t>(at)] = (At(x, at) - sum) / std::sqrt(square + eps);
    });
  }
  return out;
}

TEST(CaffeForks, SegNetsBnUsesTheBatchInBothPhases) {
  const std::string text =
      Single({3, 2, 2, 5}, "BN",
             "bn_param { bn_mode: LEARN scale_filler { type: 'constant' value: "
             "2 } shift_filler { type: 'constant' value: 0.5 } }");
  const Tensor x = Drawn({3, 2, 2, 5});
  std::vector<double> want = Normalized(x, 1e-9);
  for (double& v : want) v = 2 * v + 0.5;
  for (const bool train : {true, false})
    ExpectNear(TestNet(text, train).Run({{"data", x}}, "y"), want, 1e-4);
}

void AddBlob(proto::caffe::LayerParameter* layer, const std::vector<int64_t>& dims,
             const std::vector<float>& values) {
  auto* blob = layer->add_blobs();
  for (const int64_t dim : dims) blob->mutable_shape()->add_dim(dim);
  blob->mutable_data()->Assign(values.begin(), values.end());
}

// The result of a net with one layer 'y' with these blobs of two channels.
Tensor RunWithBlobs(const std::string& text, const std::vector<std::vector<float>>& blobs,
                    const std::vector<int64_t>& dims, const Tensor& x) {
  proto::caffe::NetParameter file;
  auto* layer = file.add_layer();
  layer->set_name("y");
  for (const auto& values : blobs)
    AddBlob(layer, values.size() == 2 ? dims : std::vector<int64_t>{1}, values);
  TemporaryDirectory directory;
  std::vector<std::string> notes;
  SaveInferenceNet(ParseNet(text, "n.prototxt"), {},
                   ParseCaffeModel(file.SerializeAsString(), "w.caffemodel"), directory.File("m"),
                   &notes);
  Scope scope;
  const InferenceModel model = LoadInferenceModel(directory.File("m"), scope);
  return Executor().Run(model.program, scope, {{"data", x}}, model.fetch_names)[0];
}

std::vector<double> Affine(const Tensor& x, const std::vector<double>& scale,
                           const std::vector<double>& shift) {
  std::vector<double> want;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto c = static_cast<size_t>(i / (x.numel() / x.shape()[0] / 2) % 2);
    want.push_back(At(x, i) * scale[c] + shift[c]);
  }
  return want;
}

TEST(CaffeForks, WeightsOfBatchNormalizations) {
  const Shape shape = {2, 2, 1, 3};
  const Tensor x = Drawn(shape);
  // SegNet, INFERENCE: scale and shift.
  const std::vector<double> scale = {3, -2}, shift = {0.5, 1};
  ExpectNear(RunWithBlobs(Single(shape, "BN", "bn_param { bn_mode: INFERENCE }"),
                          {{3, -2}, {0.5, 1}}, {1, 2, 1, 1}, x),
             Affine(x, scale, shift));
  // PSPNet and SENet: scale, shift, mean, variance.
  const double a = 3 / std::sqrt(4.5), b = -2 / std::sqrt(1.5);
  const std::vector<double> want = Affine(x, {a, b}, {0.5 - a * 0.25, 1 + b});
  const std::vector<std::vector<float>> blobs = {{3, -2}, {0.5, 1}, {0.25, -1}, {4, 1}};
  for (const char* param : {"eps: 0.5", "frozen: true eps: 0.5"}) {
    ExpectNear(RunWithBlobs(Single(shape, "BN", std::string("bn_param { ") + param + " }"), blobs,
                            {1, 2, 1, 1}, x),
               want);
  }
  ExpectNear(RunWithBlobs(Single(shape, "CuDNNBatchNorm", "cudnn_batch_norm_param { eps: 0.5 }"),
                          blobs, {1, 2, 1, 1}, x),
             want);
  // NVIDIA: mean, variance, 1, scale, shift.
  ExpectNear(
      RunWithBlobs(Single(shape, "BatchNorm", "batch_norm_param { eps: 0.5 scale_bias: true }"),
                   {{0.25, -1}, {4, 1}, {1}, {3, -2}, {0.5, 1}}, {2}, x),
      want);
}

TEST(CaffeForks, PspNetsBnTrains) {
  const Tensor x = Drawn({3, 2, 2, 5});
  const std::string filler = "slope_filler { type: 'constant' value: 1 } }";
  TestNet net(Single({3, 2, 2, 5}, "BN", "bn_param { momentum: 0.75 " + filler), true);
  ExpectNear(net.Run({{"data", x}}, "y"), Normalized(x, 1e-5), 1e-4);
  // The mean began at 0.
  double mean = 0;
  for (int64_t i = 0; i < 60; ++i)
    if (i / 10 % 2 == 0) mean += At(x, i) / 30;
  EXPECT_NEAR(At(net.scope.Get("y.mean"), 0), 0.25 * mean, 1e-6);
  // Frozen, it has its statistics (0 and 1) and is not trained.
  TestNet frozen(Single({3, 2, 2, 5}, "BN", "bn_param { frozen: true eps: 0 " + filler), true);
  ExpectNear(frozen.Run({{"data", x}}, "y"), Affine(x, {1, 1}, {0, 0}));
  EXPECT_TRUE(Contains(frozen.imported.text, "trainable: false"));
}

// Without a momentum, the statistics keep 0.999 of their old values.
TEST(CaffeForks, CudnnsStatisticsMoveByAThousandth) {
  const Tensor x = Drawn({3, 2, 2, 5});
  TestNet net(Single({3, 2, 2, 5}, "CuDNNBatchNorm", "cudnn_batch_norm_param { eps: 0.5 }"), true);
  net.Run({{"data", x}}, "y");
  double mean = 0;
  for (int64_t i = 0; i < 60; ++i)
    if (i / 10 % 2 == 0) mean += At(x, i) / 30;
  EXPECT_NEAR(At(net.scope.Get("y.mean"), 0), 0.001 * mean, 1e-7);
}

TEST(CaffeForks, AnUnclearBnIsRefused) {
  EXPECT_TRUE(Contains(Refusal({1, 2, 2, 2}, "BN"), "two versions of BN exist"));
  EXPECT_TRUE(Contains(Refusal({1, 2, 2, 2}, "BN", "bn_param { bn_mode: LEARN frozen: true }"),
                       "exclude each other"));
}

}  // namespace coracle::caffe::caffe_fork_layers_test
