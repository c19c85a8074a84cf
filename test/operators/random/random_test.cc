#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/random/normal.h>
#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace coracle::random_test {

constexpr int64_t kCount = 40000;

int32_t Number(DType dtype) { return static_cast<int32_t>(dtype); }

std::vector<double> Draws(OpTest test) {
  Tensor out = test.Output("Out").Cast(DType::kFloat64);
  auto span = out.span<double>();
  return {span.begin(), span.end()};
}

// Largest distance between the empirical distribution and `cdf` (Kolmogorov and Smirnov).
double Distance(std::vector<double> draws, const std::function<double(double)>& cdf) {
  std::sort(draws.begin(), draws.end());
  const double n = static_cast<double>(draws.size());
  double largest = 0;
  for (size_t i = 0; i < draws.size(); ++i) {
    const double p = cdf(draws[i]), rank = static_cast<double>(i);
    largest = std::max({largest, std::abs(p - rank / n), std::abs(p - (rank + 1) / n)});
  }
  return largest;
}

// The distance passes 1.95 / sqrt(n) once in a thousand seeds.
double Bound(size_t n) { return 1.95 / std::sqrt(static_cast<double>(n)); }

// Correlation of neighbours: a generator that repeats words would show here.
double Correlation(const std::vector<double>& x) {
  double mean = 0, variance = 0, product = 0;
  for (double v : x) mean += v / static_cast<double>(x.size());
  for (size_t i = 0; i + 1 < x.size(); ++i) {
    variance += (x[i] - mean) * (x[i] - mean);
    product += (x[i] - mean) * (x[i + 1] - mean);
  }
  return product / variance;
}

OpTest Random(const std::string& type, DType dtype) {
  OpTest test(type);
  test.Attr("dtype", Number(dtype));
  if (type == "truncated_gaussian_random")
    test.Attr("shape", std::vector<int32_t>{200, 200});
  else
    test.Attr("shape", std::vector<int64_t>{200, 200});
  return test;
}

TEST(UniformRandom, Distribution) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    SCOPED_TRACE(ToString(dtype));
    auto draws = Draws(Random("uniform_random", dtype).Attr("min", -2.f).Attr("max", 6.f));
    ASSERT_EQ(kCount, static_cast<int64_t>(draws.size()));
    EXPECT_LT(Distance(draws, [](double x) { return (x + 2) / 8; }), Bound(draws.size()) + 1e-3);
    EXPECT_LT(std::abs(Correlation(draws)), 0.025);
    EXPECT_GE(*std::min_element(draws.begin(), draws.end()), -2);
    EXPECT_LE(*std::max_element(draws.begin(), draws.end()), 6);
  }
}

TEST(UniformRandom, NeverReachesMax) {
  auto draws =
      Draws(Random("uniform_random", DType::kFloat32).Attr("min", 1.f).Attr("max", 1.0000001f));
  for (double v : draws) EXPECT_EQ(1.0, v);
  draws = Draws(Random("uniform_random", DType::kFloat32).Attr("min", 2.f).Attr("max", 2.f));
  for (double v : draws) EXPECT_EQ(2.0, v);
  draws = Draws(Random("uniform_random", DType::kFloat32).Attr("min", -3e38f).Attr("max", 3e38f));
  for (double v : draws) EXPECT_TRUE(std::isfinite(v));
}

TEST(UniformRandom, Diagonal) {
  Tensor out = OpTest("uniform_random")
                   .Attr("shape", std::vector<int64_t>{3, 3})
                   .Attr("min", 0.f)
                   .Attr("diag_num", 3)
                   .Attr("diag_step", 3)
                   .Attr("diag_val", 7.f)
                   .Output("Out");
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(i % 4 == 0, out.data<float>()[i] == 7.f) << i;
}

// The drawn elements are those of the full tensor, and normal; the zeros are chosen independently.
TEST(GaussianRandom, ShareIsDrawn) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    SCOPED_TRACE(ToString(dtype));
    const auto all = Draws(Random("gaussian_random", dtype).Attr("mean", 1.f));
    const auto some = Draws(Random("gaussian_random", dtype).Attr("mean", 1.f).Attr("share", 0.3f));
    std::vector<double> drawn, chosen;
    ASSERT_EQ(all.size(), some.size());
    for (size_t i = 0; i < some.size(); ++i) {
      chosen.push_back(some[i] != 0 ? 1 : 0);
      if (some[i] == 0) continue;
      EXPECT_EQ(all[i], some[i]);
      drawn.push_back(some[i]);
    }
    const auto n = static_cast<double>(some.size());
    EXPECT_NEAR(static_cast<double>(drawn.size()) / n, 0.3, 5 * std::sqrt(0.3 * 0.7 / n));
    EXPECT_LT(Distance(drawn, [](double x) { return NormalCdf(x - 1); }), Bound(drawn.size()));
    EXPECT_LT(std::abs(Correlation(chosen)), 0.025);
  }
  const auto none = Draws(Random("gaussian_random", DType::kFloat32).Attr("share", 0.f));
  for (double v : none) EXPECT_EQ(0.0, v);
}

TEST(GaussianRandom, Distribution) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    SCOPED_TRACE(ToString(dtype));
    auto draws = Draws(Random("gaussian_random", dtype).Attr("mean", 1.f).Attr("std", 2.f));
    const double slack = dtype == DType::kBFloat16 ? 4e-3 : 0;
    EXPECT_LT(Distance(draws, [](double x) { return NormalCdf((x - 1) / 2); }),
              Bound(draws.size()) + slack);
    EXPECT_LT(std::abs(Correlation(draws)), 0.025);
  }
}

TEST(GaussianRandomBatchSizeLike, ShapeAndDistribution) {
  const auto like = [](std::vector<int32_t> shape, int in, int out) {
    OpTest test("gaussian_random_batch_size_like");
    test.Attr("shape", std::move(shape)).Attr("input_dim_idx", in).Attr("output_dim_idx", out);
    test.IntInput("Input", {1, 4}, {1, 2, 3, 4});
    return test;
  };
  const Tensor out = like({5000, -1}, 1, 1).Attr("mean", 1.f).Attr("std", 2.f).Output("Out");
  EXPECT_EQ("float32[5000, 4]", out.ToString());
  const std::vector<double> draws(out.span<float>().begin(), out.span<float>().end());
  EXPECT_LT(Distance(draws, [](double x) { return NormalCdf((x - 1) / 2); }), Bound(draws.size()));
  const std::string name = "gaussian_random_batch_size_like";
  like({-1, -1}, 0, 0).ExpectError(name + ".C1");
  like({-1}, 2, 0).ExpectError(name + ".C2");
  like({-1}, 0, 1).ExpectError(name + ".C3");
  like({-1}, 0, 0).Attr("std", -1.f).ExpectError(name + ".C4");
  like({-1}, 0, 0).Attr("dtype", Number(DType::kInt32)).ExpectError(name + ".C6");
}

TEST(TruncatedGaussianRandom, Distribution) {
  auto draws = Draws(
      Random("truncated_gaussian_random", DType::kFloat64).Attr("mean", -1.f).Attr("std", 0.5f));
  const double low = std::erfc(std::sqrt(2.0)) / 2;  // Phi(-2)
  EXPECT_LT(
      Distance(draws, [=](double x) { return (NormalCdf((x + 1) / 0.5) - low) / (1 - 2 * low); }),
      Bound(draws.size()));
  EXPECT_GE(*std::min_element(draws.begin(), draws.end()), -2);
  EXPECT_LE(*std::max_element(draws.begin(), draws.end()), 0);
  EXPECT_LT(*std::min_element(draws.begin(), draws.end()), -1.99);
}

TEST(TruncatedGaussianRandom, QuantileInvertsCdf) {
  for (double p = 1e-6; p < 1; p += 0.00917) EXPECT_NEAR(p, NormalCdf(NormalQuantile(p)), 1e-14);
  EXPECT_NEAR(1.959963984540054, NormalQuantile(0.975), 1e-12);  // a table's value
}

TEST(RandomOps, SameBitsWhateverTheThreads) {
  const int before = NumThreads();
  for (const char* type : {"uniform_random", "gaussian_random", "truncated_gaussian_random"}) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
      SetNumThreads(1);
      Tensor one = Random(type, dtype).Output("Out");
      SetNumThreads(3);
      Tensor three = Random(type, dtype).Output("Out");
      EXPECT_TRUE(BitEqual(one, three)) << type;
    }
  }
  SetNumThreads(before);
}

TEST(RandomOps, SeedStepAndAttr) {
  for (const char* type : {"uniform_random", "gaussian_random", "truncated_gaussian_random"}) {
    Tensor base = Random(type, DType::kFloat32).Output("Out");
    EXPECT_TRUE(BitEqual(base, Random(type, DType::kFloat32).Output("Out")));
    EXPECT_FALSE(BitEqual(base, Random(type, DType::kFloat32).Seed(8).Output("Out")));
    EXPECT_FALSE(BitEqual(base, Random(type, DType::kFloat32).Step(1).Output("Out")));
    Tensor fixed = Random(type, DType::kFloat32).Attr("seed", 3).Output("Out");
    EXPECT_FALSE(BitEqual(base, fixed));
    EXPECT_TRUE(
        BitEqual(fixed, Random(type, DType::kFloat32).Attr("seed", 3).Seed(8).Output("Out")));
  }
}

TEST(RandomOps, ShapeSources) {
  EXPECT_EQ("[2, 3]", OpTest("uniform_random")
                          .IntInput("ShapeTensor", {2}, {2, 3})
                          .Output("Out")
                          .shape()
                          .ToString());
  EXPECT_EQ("[4, 3]", OpTest("uniform_random_batch_size_like")
                          .Attr("shape", std::vector<int32_t>{-1, 3})
                          .Input("Input", {4, 1}, {1, 2, 3, 4})
                          .Output("Out")
                          .shape()
                          .ToString());
}

TEST(RandomOps, Constraints) {
  const int32_t integer = Number(DType::kInt32);
  for (const char* type : {"uniform_random", "gaussian_random"}) {
    const std::string name = type;
    OpTest(type).IntInput("ShapeTensor", {1}, {-1}).ExpectError(name + ".C1");
    OpTest(type).Attr("shape", std::vector<int64_t>(10, 1)).ExpectError(name + ".C2");
    OpTest(type).Attr("dtype", integer).ExpectError(name + ".C3");
  }
  OpTest("uniform_random").Attr("min", 2.f).ExpectError("uniform_random.C4");
  OpTest("uniform_random")
      .Attr("shape", std::vector<int64_t>{3})
      .Attr("diag_num", 2)
      .Attr("diag_step", 2)
      .ExpectError("uniform_random.C5");
  OpTest("gaussian_random").Attr("std", -1.f).ExpectError("gaussian_random.C4");
  for (const float share : {-0.1f, 1.5f, std::numeric_limits<float>::quiet_NaN()})
    OpTest("gaussian_random").Attr("share", share).ExpectError("gaussian_random.C5");
  auto truncated = [](std::vector<int32_t> shape) {
    OpTest test("truncated_gaussian_random");
    test.Attr("shape", std::move(shape));
    return test;
  };
  truncated({-1}).ExpectError("truncated_gaussian_random.C1");
  truncated(std::vector<int32_t>(10, 1)).ExpectError("truncated_gaussian_random.C2");
  truncated({1}).Attr("dtype", integer).ExpectError("truncated_gaussian_random.C3");
  truncated({1}).Attr("std", -1.f).ExpectError("truncated_gaussian_random.C4");
  auto like = [](std::vector<int32_t> shape, int in, int out) {
    OpTest test("uniform_random_batch_size_like");
    test.Attr("shape", std::move(shape)).Attr("input_dim_idx", in).Attr("output_dim_idx", out);
    test.Input("Input", {2}, {1, 2});
    return test;
  };
  const std::string name = "uniform_random_batch_size_like";
  like({-1, -1}, 0, 0).ExpectError(name + ".C1");
  like({-1}, 1, 0).ExpectError(name + ".C2");
  like({-1}, 0, 1).ExpectError(name + ".C3");
  like({-1}, 0, 0).Attr("max", -2.f).ExpectError(name + ".C4");
  like({-1}, 0, 0).Attr("diag_num", 9).ExpectError(name + ".C5");
  like({-1}, 0, 0).Attr("dtype", integer).ExpectError(name + ".C6");
}

}  // namespace coracle::random_test
