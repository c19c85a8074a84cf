#include <coracle/test/op_test.h>
#include <coracle/test/operators/inferred_shape.h>

#include <cmath>
#include <numeric>

namespace coracle::layer_norm_test {

OpTest Norm(const Shape& x, int axis, bool scale = true, bool bias = true) {
  OpTest test("layer_norm");
  test.Attr("begin_norm_axis", axis).RandomInput("X", x);
  int64_t columns = 1;
  for (int i = axis; i < x.rank(); ++i) columns *= x[i];
  if (scale) test.RandomInput("Scale", {columns}, 0.5, 2);
  if (bias) test.RandomInput("Bias", {columns});
  return test;
}

TEST(LayerNorm, Values) {
  // Rows {1, 3} and {0, 8}: means 2 and 4, biased variances 1 and 16.
  OpTest("layer_norm")
      .Attr("epsilon", 0.0f)
      .Input("X", {2, 2}, {1, 3, 0, 8})
      .Input("Scale", {2}, {10, 100})
      .Input("Bias", {2}, {1, 2})
      .Expect("Y", {2, 2}, {-9, 102, -9, 102})
      .Expect("Mean", {2}, {2, 4})
      .Expect("Variance", {2}, {1, 16});
}

TEST(LayerNorm, WithoutScaleAndBias) {
  OpTest("layer_norm")
      .Attr("epsilon", 0.0f)
      .Attr("begin_norm_axis", 2)
      .Input("X", {1, 2, 2}, {1, 3, 0, 8})
      .Expect("Y", {1, 2, 2}, {-1, 1, -1, 1})
      .Expect("Mean", {2}, {2, 4});
}

TEST(LayerNorm, EpsilonGuardsAConstantRow) {
  OpTest("layer_norm")
      .Attr("epsilon", 0.25f)
      .Input("X", {1, 3}, {7, 7, 7})
      .Input("Bias", {3}, {1, 2, 3})
      .Expect("Y", {1, 3}, {1, 2, 3});
}

TEST(LayerNorm, LargeMeanKeepsTheVariance) {
  std::vector<double> x, y;
  for (int i = 0; i < 100; ++i) {
    x.push_back(4096 + (i % 2 ? 1 : -1));
    y.push_back(i % 2 ? 1 : -1);
  }
  OpTest("layer_norm")
      .Attr("epsilon", 0.0f)
      .Input("X", {1, 100}, x)
      .Expect("Y", {1, 100}, y)
      .Expect("Variance", {1}, {1});
}

// The mean is not a float, so the part that rounding loses counts.
TEST(LayerNorm, LargeMeanKeepsTheDigits) {
  constexpr size_t kRow = 77;
  std::vector<double> x, y;
  for (double mean : {1e4, 1e5, -3e5}) {
    for (size_t i = 0; i < kRow; ++i) x.push_back(mean + static_cast<double>(i * 29 % 64) / 32);
    const auto row = x.end() - kRow;
    const double m = std::accumulate(row, x.end(), 0.0) / kRow;
    double square = 0;
    for (size_t i = 0; i < kRow; ++i) square += (row[i] - m) * (row[i] - m) / kRow;
    for (size_t i = 0; i < kRow; ++i) y.push_back((row[i] - m) / std::sqrt(square));
  }
  OpTest("layer_norm")
      .Attr("epsilon", 0.f)
      .Input("X", {3, kRow}, x)
      .Expect("Y", {3, kRow}, y, 2e-6);
  OpTest("fused_residual_layer_norm")
      .Attr("epsilon", 0.f)
      .NoOutput("Mask")
      .Input("X", {3, kRow}, x)
      .Input("Y", {3, kRow}, std::vector<double>(x.size(), 0.0))
      .Expect("Out", {3, kRow}, y, 2e-6);
}

// The squares, or the sums too, are more than floats hold.
TEST(LayerNorm, LargeNumbers) {
  std::vector<double> x, y;
  for (double size : {1e18, 1e19, 1e30, 1e37}) {
    for (int i = 0; i < 100; ++i) {
      x.push_back(size * (i % 4 == 0 ? 3 : 1));
      y.push_back((i % 4 == 0 ? 1.5 : -0.5) / std::sqrt(0.75));
    }
  }
  OpTest("layer_norm").Input("X", {4, 100}, x).Expect("Y", {4, 100}, y);
}

TEST(LayerNorm, EmptyBatch) {
  OpTest("layer_norm")
      .Input("X", {0, 2}, {})
      .Input("Scale", {2}, {1, 1})
      .Expect("Y", {0, 2}, {})
      .Expect("Mean", {0}, {});
}

TEST(LayerNorm, Gradients) {
  Norm({3, 5}, 1).CheckGradient({"X", "Scale", "Bias"});
  Norm({2, 3, 4}, 2).CheckGradient({"X", "Scale", "Bias"});
  Norm({2, 3, 4}, 1, false, true).CheckGradient({"X", "Bias"});
  Norm({2, 3, 4}, 1, true, false).CheckGradient({"X", "Scale"});
  // The sum of a normalised row does not depend on X, but a weighted one does.
  Norm({4, 6}, 1, false, false).CheckGradient({"X"});
}

// Without Mean and Variance: as inputs of the gradient op they would be held fixed.
TEST(LayerNorm, SecondGradients) {
  Norm({3, 5}, 1)
      .NoOutput("Mean")
      .NoOutput("Variance")
      .CheckGradient({"X", "Scale", "Bias"})
      .CheckSecondGradient({"X", "Scale", "Bias"});
  Norm({2, 2, 3}, 1, false, false).NoOutput("Mean").NoOutput("Variance").CheckSecondGradient({"X"});
}

TEST(LayerNorm, FastAgainstReference) {
  std::mt19937 random(21);
  auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 40; ++trial) {
    const Shape shape{pick(1, 9), pick(1, 7), pick(3, 90)};
    SCOPED_TRACE(::testing::Message() << "trial " << trial << " " << shape.ToString());
    Norm(shape, pick(1, 2), pick(0, 2) > 0, pick(0, 2) > 0).CheckFast();
  }
  Norm({300, 257}, 1).CheckFast(1e-3);
  Norm({2, 10001}, 1).CheckFast(1e-3);
}

TEST(LayerNorm, UnknownDimsWhileBuilding) {
  const std::vector<std::pair<std::string, Shape>> ins = {{"X", {-1, 2, 3}}, {"Scale", {6}}};
  EXPECT_EQ("[-1, 2, 3]", InferredShape("layer_norm", ins, "Y", {}));
  EXPECT_EQ("[-1]", InferredShape("layer_norm", ins, "Mean", {}));
}

TEST(LayerNorm, C1_Axis) {
  OpTest("layer_norm")
      .Attr("begin_norm_axis", 2)
      .RandomInput("X", {2, 2})
      .ExpectError("layer_norm.C1");
  OpTest("layer_norm")
      .Attr("begin_norm_axis", 0)
      .RandomInput("X", {2, 2})
      .ExpectError("layer_norm.C1");
}
TEST(LayerNorm, C2_Lengths) {
  OpTest("layer_norm")
      .RandomInput("X", {2, 3})
      .RandomInput("Scale", {2})
      .ExpectError("layer_norm.C2");
}
TEST(LayerNorm, C3_DTypes) {
  OpTest("layer_norm")
      .RandomInput("X", {2, 3})
      .TensorInput("Bias", Tensor::Zeros(DType::kFloat16, {3}))
      .ExpectError("layer_norm.C3");
}
TEST(LayerNorm, C4_OutputGradShape) {
  OpTest("layer_norm_grad")
      .RandomInput("X", {2, 3})
      .RandomInput("Y@GRAD", {2, 2})
      .ExpectError("layer_norm_grad.C4");
}
TEST(LayerNorm, C5_Statistics) {
  OpTest("layer_norm_grad")
      .RandomInput("X", {2, 3})
      .RandomInput("Mean", {3})
      .RandomInput("Y@GRAD", {2, 3})
      .ExpectError("layer_norm_grad.C5");
}

TEST(LayerNorm, SecondOrderConstraints) {
  const auto second = [](const Shape& mean, const Shape& ddx) {
    OpTest test("layer_norm_grad_grad");
    test.RandomInput("X", {2, 3}).RandomInput("Y@GRAD", {2, 3}).RandomInput("Mean", mean);
    test.RandomInput("X@GRAD@GRAD", ddx);
    return test;
  };
  second({2}, {2, 2}).ExpectError("layer_norm_grad_grad.C4");
  second({3}, {2, 3}).ExpectError("layer_norm_grad_grad.C5");
}

}  // namespace coracle::layer_norm_test
