#include <coracle/test/op_test.h>

#include <cmath>
#include <random>

namespace coracle::fused_residual_layer_norm_test {

const std::string kType = "fused_residual_layer_norm";
const std::string kGradients = "fused_residual_layer_norm_gradients";

OpTest Forward(const Shape& x, const Shape& y, int32_t axis, int64_t columns) {
  OpTest test(kType);
  test.Attr("begin_norm_axis", axis)
      .RandomInput("X", x)
      .RandomInput("Y", y)
      .RandomInput("Scale", {columns}, 0.5, 2)
      .RandomInput("Bias", {columns});
  return test;
}

OpTest Grad(const Shape& x, int32_t axis, int64_t rows, int64_t columns) {
  OpTest test(kGradients);
  test.Attr("begin_norm_axis", axis)
      .RandomInput("X", x)
      .RandomInput("Scale", {columns}, 0.5, 2)
      .RandomInput("Mean", {rows})
      .RandomInput("Variance", {rows}, 0.5, 2)
      .RandomInput("Out@GRAD", x);
  return test;
}

Tensor Mask(const Shape& shape, uint32_t state = 1) {
  Tensor mask(DType::kUInt8, shape);
  for (uint8_t& kept : mask.span<uint8_t>()) {
    state = state * 1664525u + 1013904223u;
    kept = state >> 24 > 80;
  }
  return mask;
}

// Rows {1, 3} and {4, 12}: means 2 and 8, variances 1 and 16.
TEST(FusedResidualLayerNorm, Values) {
  OpTest(kType)
      .Attr("epsilon", 0.0f)
      .Input("X", {2, 2}, {1, 2, 0, 10})
      .Input("Y", {2, 2}, {0, 1, 4, 2})
      .Input("Scale", {2}, {10, 2})
      .Input("Bias", {2}, {5, 1})
      .NoOutput("Mask")
      .Expect("Sum", {2, 2}, {1, 3, 4, 12})
      .Expect("Out", {2, 2}, {-5, 3, -5, 3})
      .Expect("Mean", {2}, {2, 8})
      .Expect("Variance", {2}, {1, 16});
}

TEST(FusedResidualLayerNorm, WithoutTheSum) {
  for (const char* term : {"X", "Y"}) {
    OpTest(kType)
        .Attr("epsilon", 0.0f)
        .Input("X", {2, 2}, {1, 2, 0, 10})
        .Input("Y", {2, 2}, {0, 1, 4, 2})
        .NoOutput("Mask")
        .NoOutput("Sum")
        .Expect("Out", {2, 2}, {-1, 1, -1, 1});
    OpTest(kType)
        .Attr("epsilon", 0.0f)
        .Input("X", {2, 2}, {1, 2, 0, 10})
        .Input("Y", {2, 2}, {0, 1, 4, 2})
        .NoOutput("Mask")
        .InPlace(term, "Sum")
        .Expect("Out", {2, 2}, {-1, 1, -1, 1});
  }
}

TEST(FusedResidualLayerNorm, RepeatedTerms) {
  for (const bool first : {false, true}) {
    OpTest(kType)
        .Attr("epsilon", 0.0f)
        .Input(first ? "X" : "Y", {2, 2}, {0, 2, 3, 11})
        .Input(first ? "Y" : "X", {2}, {1, 1})
        .NoOutput("Mask")
        .Expect("Sum", {2, 2}, {1, 3, 4, 12})
        .Expect("Out", {2, 2}, {-1, 1, -1, 1});
  }
}

// With xh = X and g = Out@GRAD: g - mean(g) - xh mean(g xh) = {3, 0, 0} - 1 - {1, 0, -1}.
TEST(FusedResidualLayerNorm, GradientValues) {
  const auto grad = [] {
    OpTest test(kGradients);
    test.Attr("epsilon", 0.0f)
        .Input("X", {1, 3}, {1, 0, -1})
        .Input("Mean", {1}, {0})
        .Input("Variance", {1}, {1})
        .Input("Out@GRAD", {1, 3}, {3, 0, 0});
    return test;
  };
  grad()
      .Expect("A@GRAD", {1, 3}, {1, -1, 0})
      .Expect("B@GRAD", {1, 3}, {1, -1, 0})
      .Expect("Scale@GRAD", {3}, {3, 0, 0})
      .Expect("Bias@GRAD", {3}, {3, 0, 0});
  const std::vector<double> sum = {11, 19, 30}, dropped = {22, 0, 60};
  for (const bool first : {false, true}) {
    Tensor mask(DType::kUInt8, {1, 3});
    for (int64_t i = 0; i < 3; ++i) mask.data<uint8_t>()[i] = i != 1;
    grad()
        .Attr("dropped", std::string(first ? "A" : "B"))
        .Attr("dropout_prob", 0.5f)
        .Input("Sum@GRAD", {1, 3}, {10, 20, 30})
        .TensorInput("Mask", mask)
        .Expect("A@GRAD", {1, 3}, first ? dropped : sum)
        .Expect("B@GRAD", {1, 3}, first ? sum : dropped);
  }
  grad()
      .Input("B", {1}, {7})
      .Input("Sum@GRAD", {1, 3}, {10, 20, 30})
      .Expect("A@GRAD", {1, 3}, sum)
      .Expect("B@GRAD", {1}, {60});
}

TEST(FusedResidualLayerNorm, FastKernels) {
  struct Case {
    Shape shape;
    int32_t axis;
    int64_t columns;
  };
  for (const Case& c : {Case{{1, 1}, 1, 1}, Case{{3, 5}, 1, 5}, Case{{2, 3, 17}, 2, 17},
                        Case{{2, 3, 17}, 1, 51}, Case{{70, 64}, 1, 64}, Case{{3, 2500}, 1, 2500}}) {
    for (const char* dropped : {"", "X", "Y"}) {
      SCOPED_TRACE(c.shape.ToString() + dropped);
      Forward(c.shape, c.shape, c.axis, c.columns)
          .Attr("dropped", std::string(dropped))
          .Attr("dropout_prob", 0.3f)
          .Seed(7)
          .CheckFast(1e-5);
    }
    for (const char* dropped : {"", "A", "B"}) {
      for (const char* absent : {"", "A@GRAD", "B@GRAD", "Scale@GRAD"}) {
        for (const bool more : {false, true}) {
          SCOPED_TRACE(c.shape.ToString() + dropped + absent);
          OpTest test = Grad(c.shape, c.axis, c.shape.numel() / c.columns, c.columns);
          test.Attr("dropped", std::string(dropped)).Attr("dropout_prob", 0.3f);
          if (*dropped) test.TensorInput("Mask", Mask(c.shape));
          if (*absent) test.NoOutput(absent);
          if (more) test.RandomInput("Sum@GRAD", c.shape);
          test.CheckFast(1e-4);
        }
      }
    }
  }
  Forward({0, 3}, {0, 3}, 1, 3).CheckFast();
  Grad({0, 3}, 1, 0, 3).CheckFast();
}

// --- in 16 bits ---

constexpr int64_t kRows = 6, kColumns = 37;
constexpr double kEpsilon = 1e-5, kProbability = 0.25;

Tensor Uniform(const Shape& shape, DType dtype, uint32_t seed, double low = -1, double high = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  Tensor value(DType::kFloat64, shape);
  for (double& v : value.span<double>()) v = uniform(random);
  return value.Cast(dtype);
}

std::vector<double> Exact(const Tensor& value) {
  const Tensor wide = value.Cast(DType::kFloat64);
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

// The dtype, and rounded to it once; `least`: the error of float32 arithmetic.
void ExpectRounded(const Tensor& got, const std::vector<double>& exact, DType dtype,
                   double least = 1e-5) {
  ASSERT_EQ(got.dtype(), dtype);
  ASSERT_EQ(got.numel(), std::ssize(exact));
  const double unit = dtype == DType::kFloat16 ? 0x1p-11 : dtype == DType::kBFloat16 ? 0x1p-8 : 0;
  const std::vector<double> values = Exact(got);
  for (size_t i = 0; i < exact.size(); ++i)
    ASSERT_NEAR(values[i], exact[i], unit * std::fabs(exact[i]) + least) << i;
}

struct Row {
  double mean = 0, variance = 0;
};
Row RowOf(const double* row) {
  Row stats;
  for (int64_t k = 0; k < kColumns; ++k) stats.mean += row[k] / kColumns;
  for (int64_t k = 0; k < kColumns; ++k)
    stats.variance += (row[k] - stats.mean) * (row[k] - stats.mean) / kColumns;
  return stats;
}

TEST(FusedResidualLayerNorm, SixteenBits) {
  const Tensor scale = Uniform({kColumns}, DType::kFloat32, 3, 0.5, 2),
               bias = Uniform({kColumns}, DType::kFloat32, 4);
  const std::vector<double> w = Exact(scale), b = Exact(bias);
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor x = Uniform({kRows, kColumns}, half, 1), y = Uniform({kRows, kColumns}, half, 2);
    std::vector<double> sum = Exact(x), out, mean, variance;
    const std::vector<double> other = Exact(y);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    for (int64_t r = 0; r < kRows; ++r) {
      const double* row = sum.data() + r * kColumns;
      const Row stats = RowOf(row);
      for (int64_t k = 0; k < kColumns; ++k) {
        const double normal = (row[k] - stats.mean) / std::sqrt(stats.variance + kEpsilon);
        out.push_back(normal * w[static_cast<size_t>(k)] + b[static_cast<size_t>(k)]);
      }
      mean.push_back(stats.mean);
      variance.push_back(stats.variance);
    }
    for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      SCOPED_TRACE(::testing::Message() << ToString(half) << (mode == KernelMode::kAuto));
      OpTest test(kType);
      test.TensorInput("X", x).TensorInput("Y", y).TensorInput("Scale", scale);
      test.TensorInput("Bias", bias).NoOutput("Mask");
      ExpectRounded(test.Output("Out", mode), out, half);
      ExpectRounded(test.Output("Sum", mode), sum, half);
      ExpectRounded(test.Output("Mean", mode), mean, DType::kFloat32);
      ExpectRounded(test.Output("Variance", mode), variance, DType::kFloat32);
    }
  }
}

// dx = (g - mean(g) - xh mean(g xh)) / sqrt(variance + epsilon) + Sum@GRAD, with g = Out@GRAD Scale
// and xh the normalized row; A was dropped.
TEST(FusedResidualLayerNorm, GradientInSixteenBits) {
  const Shape shape = {kRows, kColumns};
  const Tensor scale = Uniform({kColumns}, DType::kFloat32, 3, 0.5, 2), mask = Mask(shape);
  const std::vector<double> w = Exact(scale);
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor x = Uniform(shape, half, 1), dout = Uniform(shape, half, 5),
                 dsum = Uniform(shape, half, 6);
    const std::vector<double> sum = Exact(x), d = Exact(dout), more = Exact(dsum);
    Tensor mean(DType::kFloat32, {kRows}), variance(DType::kFloat32, {kRows});
    std::vector<double> da, db, dscale(kColumns), dbias(kColumns);
    for (int64_t r = 0; r < kRows; ++r) {
      const Row stats = RowOf(sum.data() + r * kColumns);
      mean.data<float>()[r] = static_cast<float>(stats.mean);
      variance.data<float>()[r] = static_cast<float>(stats.variance);
      const double inv = 1 / std::sqrt(stats.variance + kEpsilon);
      double mean_g = 0, mean_gx = 0;
      const auto at = [&](int64_t k) { return static_cast<size_t>(r * kColumns + k); };
      const auto normal = [&](int64_t k) { return (sum[at(k)] - stats.mean) * inv; };
      const auto g = [&](int64_t k) { return d[at(k)] * w[static_cast<size_t>(k)]; };
      for (int64_t k = 0; k < kColumns; ++k) {
        mean_g += g(k) / kColumns;
        mean_gx += g(k) * normal(k) / kColumns;
        dscale[static_cast<size_t>(k)] += d[at(k)] * normal(k);
        dbias[static_cast<size_t>(k)] += d[at(k)];
      }
      for (int64_t k = 0; k < kColumns; ++k) {
        const double dx = inv * (g(k) - mean_g - normal(k) * mean_gx) + more[at(k)];
        db.push_back(dx);
        da.push_back(mask.data<uint8_t>()[at(k)] ? dx / (1 - kProbability) : 0);
      }
    }
    for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      SCOPED_TRACE(::testing::Message() << ToString(half) << (mode == KernelMode::kAuto));
      OpTest test(kGradients);
      test.Attr("dropped", std::string("A")).Attr("dropout_prob", static_cast<float>(kProbability));
      test.TensorInput("X", x).TensorInput("Scale", scale).TensorInput("Mean", mean);
      test.TensorInput("Variance", variance).TensorInput("Mask", mask);
      test.TensorInput("Out@GRAD", dout).TensorInput("Sum@GRAD", dsum);
      ExpectRounded(test.Output("A@GRAD", mode), da, half);
      ExpectRounded(test.Output("B@GRAD", mode), db, half);
      ExpectRounded(test.Output("Scale@GRAD", mode), dscale, DType::kFloat32);
      ExpectRounded(test.Output("Bias@GRAD", mode), dbias, DType::kFloat32);
    }
  }
}

TEST(FusedResidualLayerNorm, Constraints) {
  const std::string id = kType + ".";
  Forward({2, 3}, {2, 3}, 2, 3).ExpectError(id + "C1");
  Forward({2, 3}, {2, 3}, 1, 2).ExpectError(id + "C2");
  Forward({2, 3}, {2, 4}, 1, 3).ExpectError(id + "C4");
  OpTest(kType)
      .RandomInput("X", {2, 3})
      .TensorInput("Y", Tensor::Zeros(DType::kInt64, {2, 3}))
      .ExpectError(id + "C3");
}

TEST(FusedResidualLayerNorm, ConstraintsOfTheGradient) {
  const std::string id = kGradients + ".";
  Grad({2, 3}, 2, 2, 3).ExpectError(id + "C1");
  Grad({2, 3}, 1, 2, 2).ExpectError(id + "C2");
  Grad({2, 3}, 1, 2, 3)
      .TensorInput("Sum@GRAD", Tensor::Zeros(DType::kInt64, {2, 3}))
      .ExpectError(id + "C3");
  Grad({2, 3}, 1, 2, 3).RandomInput("A", {3, 2}).ExpectError(id + "C4");
  Grad({2, 3}, 1, 3, 3).ExpectError(id + "C5");
  Grad({2, 3}, 1, 2, 3).RandomInput("Sum@GRAD", {3, 3}).ExpectError(id + "C6");
  Grad({2, 3}, 1, 2, 3).Attr("dropped", std::string("A")).ExpectError(id + "C7");
  Grad({2, 3}, 1, 2, 3)
      .Attr("dropped", std::string("B"))
      .RandomInput("B", {2, 3})
      .TensorInput("Mask", Mask({3, 3}))
      .ExpectError(id + "C7");
}
}  // namespace coracle::fused_residual_layer_norm_test
