// The distributions of Caffe's fillers, by their bounds and second moments.

#include <coracle/test/convert/caffe_net.h>
#include <coracle/test/error_of.h>

#include <algorithm>
#include <cmath>

namespace coracle::caffe::caffe_fillers_test {

struct Moments {
  double most = 0, mean = 0, deviation = 0;
};

Moments DrawFiller(const std::string& filler) {
  // Weights [50, 40]: fan_in 40, fan_out 50.
  TestNet net(OneLayer("dim: 1 dim: 40",
                       "name: 'f' type: 'InnerProduct' bottom: 'data' top: 'f' "
                       "inner_product_param { num_output: 50 weight_filler { " +
                           filler + " } }"));
  Moments m;
  const Tensor& w = net.scope.Get("f.w_0");
  EXPECT_EQ(w.numel(), 2000);
  for (const float v : w.span<float>()) {
    m.most = std::max(m.most, static_cast<double>(std::abs(v)));
    m.mean += static_cast<double>(v) / 2000;
  }
  for (const float v : w.span<float>())
    m.deviation += std::pow(static_cast<double>(v) - m.mean, 2) / 2000;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

TEST(CaffeFillers, UniformBounds) {
  const auto check = [](const std::string& filler, double bound, double mean) {
    SCOPED_TRACE(filler);
    const Moments m = DrawFiller(filler);
    EXPECT_LE(m.most, bound * 1.0001);
    EXPECT_GT(m.most, bound * 0.99);
    EXPECT_NEAR(m.mean, mean, bound / 20);
  };
  check("type: 'xavier'", std::sqrt(3. / 40), 0);
  check("type: 'xavier' variance_norm: FAN_OUT", std::sqrt(3. / 50), 0);
  check("type: 'xavier' variance_norm: AVERAGE", std::sqrt(3. / 45), 0);
  check("type: 'uniform' min: 0 max: 0.5", 0.5, 0.25);
  check("type: 'uniform'", 1, 0.5);
}

TEST(CaffeFillers, NormalDeviations) {
  EXPECT_NEAR(DrawFiller("type: 'msra'").deviation, std::sqrt(2. / 40), 0.01);
  EXPECT_NEAR(DrawFiller("type: 'msra' variance_norm: FAN_OUT").deviation, std::sqrt(2. / 50),
              0.01);
  EXPECT_NEAR(DrawFiller("type: 'msra' variance_norm: AVERAGE").deviation, std::sqrt(2. / 45),
              0.01);
  EXPECT_NEAR(DrawFiller("type: 'gaussian' std: 0.3").deviation, 0.3, 0.02);
  EXPECT_NEAR(DrawFiller("type: 'gaussian' mean: 2 std: 0.3").mean, 2, 0.05);
  EXPECT_NEAR(DrawFiller("type: 'constant' value: 0.125").mean, 0.125, 1e-9);
}

// Each weight is drawn with the probability sparse / outputs, here 10 / 50.
TEST(CaffeFillers, SparseNormals) {
  TestNet net(OneLayer("dim: 1 dim: 400",
                       "name: 'f' type: 'InnerProduct' bottom: 'data' top: 'f' "
                       "inner_product_param { num_output: 50 weight_filler { type: 'gaussian' "
                       "mean: 1 std: 0.5 sparse: 10 } }"));
  double drawn = 0, mean = 0, square = 0;
  for (const float w : net.scope.Get("f.w_0").span<float>()) {
    if (w == 0) continue;
    ++drawn;
    mean += static_cast<double>(w);
    square += static_cast<double>(w) * static_cast<double>(w);
  }
  mean /= drawn;
  EXPECT_NEAR(drawn / 20000, 0.2, 0.012);
  EXPECT_NEAR(mean, 1, 0.03);
  EXPECT_NEAR(std::sqrt(square / drawn - mean * mean), 0.5, 0.02);
  EXPECT_EQ(DrawFiller("type: 'gaussian' sparse: 0").most, 0);
  EXPECT_NEAR(DrawFiller("type: 'gaussian' sparse: 50").deviation, 1, 0.05);
}

// As for weights: the first dim counts the outputs, so 5 of 20 rows' worth is drawn.
TEST(CaffeFillers, SparseDummyData) {
  TestNet net(
      "layer { name: 'd' type: 'DummyData' top: 'd' dummy_data_param { shape { dim: 20 dim: 500 } "
      "data_filler { type: 'gaussian' mean: 3 std: 0.5 sparse: 5 } } }");
  const Tensor data = net.Run({}, "d");
  const auto zeros = std::count(data.span<float>().begin(), data.span<float>().end(), 0.f);
  EXPECT_NEAR(static_cast<double>(zeros) / 10000, 0.75, 0.02);
}

TEST(CaffeFillers, WhatHasNoCounterpartIsRefused) {
  for (const char* filler : {"type: 'positive_unitball'", "type: 'gausian'"}) {
    const std::string error = ErrorOf([&] { DrawFiller(filler); });
    EXPECT_NE(error.find("layer 'f' (InnerProduct)"), std::string::npos) << error;
  }
}

}  // namespace coracle::caffe::caffe_fillers_test
