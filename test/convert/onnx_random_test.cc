// Importers of random ops: shapes, dtypes, statistics and seeds of what they draw.
#include <coracle/framework/tensor/tensor.h>
#include <coracle/test/convert/one_node.h>

#include <cmath>
#include <set>

namespace coracle::onnx::onnx_random_test {

struct Moments {
  double mean = 0, variance = 0, least = 0, most = 0;
};

Moments MomentsOf(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kFloat64);
  const auto values = wide.span<double>();
  Moments m{.least = values[0], .most = values[0]};
  for (double v : values) {
    m.mean += v / static_cast<double>(values.size());
    m.least = std::min(m.least, v);
    m.most = std::max(m.most, v);
  }
  for (double v : values)
    m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  return m;
}

Numbers NumbersOf(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kFloat32);
  const auto values = wide.span<float>();
  return {values.begin(), values.end()};
}

constexpr int64_t kMany = 20000;

TEST(OnnxRandom, Normal) {
  OneNode node("RandomNormal", 1, {});
  node.Set("shape", Integers{100, kMany / 100}).Set("mean", 3.0f).Set("scale", 2.0f);
  const Tensor drawn = node.Result();
  EXPECT_EQ(drawn.shape(), (Shape{100, kMany / 100}));
  EXPECT_EQ(drawn.dtype(), DType::kFloat32);
  const Moments m = MomentsOf(drawn);
  EXPECT_NEAR(m.mean, 3, 0.06);  // four standard errors
  EXPECT_NEAR(m.variance, 4, 0.16);
}

TEST(OnnxRandom, Uniform) {
  OneNode node("RandomUniform", 1, {});
  node.Set("shape", Integers{kMany}).Set("low", -1.0f).Set("high", 3.0f);
  const Moments m = MomentsOf(node.Result());
  EXPECT_NEAR(m.mean, 1, 0.035);
  EXPECT_NEAR(m.variance, 16.0 / 12, 0.04);
  EXPECT_GE(m.least, -1);
  EXPECT_LT(m.most, 3);
}

TEST(OnnxRandom, LikesHaveShapeAndTypeOfTheirInputUnlessGiven) {
  const Tensor x(DType::kFloat64, {3, 5});
  for (const char* type : {"RandomNormalLike", "RandomUniformLike"}) {
    EXPECT_EQ(OneNode(type, 1, {x}).Result().dtype(), DType::kFloat64);
    EXPECT_EQ(OneNode(type, 1, {x}).Result().shape(), (Shape{3, 5}));
    EXPECT_EQ(OneNode(type, 22, {x}).Set("dtype", int64_t{1}).Result().dtype(), DType::kFloat32);
    EXPECT_EQ(OneNode(type, 1, {x}).Set("dtype", int64_t{10}).Result().dtype(), DType::kFloat16);
    EXPECT_NE(OneNode(type, 1, {x}).Set("dtype", int64_t{7}).Refusal().find("not floats"),
              std::string::npos);
  }
  EXPECT_NE(OneNode("RandomNormal", 1, {}).Refusal().find("attribute shape is missing"),
            std::string::npos);
}

TEST(OnnxRandom, SeedsDecideWhatIsDrawn) {
  const auto drawn = [](float seed) {
    OneNode node("RandomUniform", 1, {});
    return NumbersOf(node.Set("shape", Integers{50}).Set("seed", seed).Result());
  };
  EXPECT_EQ(drawn(7), drawn(7));
  EXPECT_NE(drawn(7), drawn(8));
  EXPECT_NE(drawn(0.25f), drawn(0.5f));
  EXPECT_EQ(drawn(0), drawn(0));
}

TEST(OnnxRandom, Bernoulli) {
  const Tensor p = F({4}, {0, 1, 0.25f, 0.75f});
  const Numbers some = OneNode("Bernoulli", 15, {p}).Run();
  EXPECT_EQ(some[0], 0);
  EXPECT_EQ(some[1], 1);
  const Tensor quarter = Tensor::Full<float>({kMany}, 0.25f);
  for (bool seeded : {false, true}) {
    OneNode node("Bernoulli", 15, {quarter});
    if (seeded) node.Set("seed", 5.0f);
    node.Set("dtype", int64_t{6});
    const Tensor drawn = node.Result();
    EXPECT_EQ(drawn.dtype(), DType::kInt32);
    const Moments m = MomentsOf(drawn);
    EXPECT_NEAR(m.mean, 0.25, 0.0125);
    EXPECT_NEAR(m.variance, 3.0 / 16, 0.007);  // so that all are 0 or 1
  }
}

TEST(OnnxRandom, Multinomial) {
  // Logarithms of 1, 2 and 1 of four.
  const Tensor logits = F({1, 3}, {0, std::log(2.0f), 0});
  for (bool seeded : {false, true}) {
    OneNode node("Multinomial", 7, {logits});
    node.Set("sample_size", kMany).Set("dtype", int64_t{7});
    if (seeded) node.Set("seed", 3.0f);
    const Tensor drawn = node.Result();
    EXPECT_EQ(drawn.dtype(), DType::kInt64);
    EXPECT_EQ(drawn.shape(), (Shape{1, kMany}));
    std::vector<double> counts(3, 0);
    for (int64_t k : drawn.span<int64_t>()) counts.at(static_cast<size_t>(k)) += 1.0 / kMany;
    EXPECT_NEAR(counts[0], 0.25, 0.0125);
    EXPECT_NEAR(counts[1], 0.5, 0.0142);
  }
}

TEST(OnnxRandom, DropoutWhileTraining) {
  const Tensor ones = Tensor::Full<float>({kMany}, 1);
  const Tensor training = Tensor::Full<bool>({1}, true).Reshaped({});
  for (bool seeded : {false, true}) {
    OneNode node("Dropout", 13, {ones, F({}, {0.75f}), training});
    if (seeded) node.Set("seed", int64_t{9});
    const std::vector<Tensor> results = node.Outputs(2).Results();
    EXPECT_EQ(results[1].dtype(), DType::kBool);
    const Numbers y = NumbersOf(results[0]), mask = NumbersOf(results[1]);
    const std::set<float> values(y.begin(), y.end());
    EXPECT_EQ(values, (std::set<float>{0, 4}));
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 4 * mask[i]);
    EXPECT_NEAR(MomentsOf(results[1]).mean, 0.25, 0.0125);
  }
}
}  // namespace coracle::onnx::onnx_random_test
