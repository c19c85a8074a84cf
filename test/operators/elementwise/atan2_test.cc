#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>
#include <limits>

namespace coracle::atan2_test {

TEST(Atan2, Values) {
  const double pi = std::acos(-1);
  OpTest("atan2")
      .Input("X1", {2, 3}, {0, 1, 1, -1, 0, 0})
      .Input("X2", {2, 3}, {1, 1, 0, -1, -1, 0})
      .Expect("Out", {2, 3}, {0, pi / 4, pi / 2, -3 * pi / 4, pi, 0});
  OpTest("atan2")
      .Input("X1", {}, {1})
      .Input("X2", {}, {std::nan("")})
      .Expect("Out", {}, {std::nan("")});
  OpTest("atan2").Input("X1", {0}, {}).Input("X2", {0}, {}).Expect("Out", {0}, {});
}

TEST(Atan2, IntegersGiveDoubles) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("atan2")
        .IntInput("X1", {2}, {3, -3}, dtype)
        .IntInput("X2", {2}, {4, 0}, dtype)
        .Expect("Out", {2}, {std::atan(0.75), -std::acos(-1) / 2}, 1e-12)
        .ExpectDType("Out", DType::kFloat64);
  }
}

TEST(Atan2, Gradients) {
  OpTest test("atan2");
  test.RandomInput("X1", {2, 3}, -2, 2, 0.2).RandomInput("X2", {2, 3}, -2, 2, 0.2);
  test.CheckGradient({"X1", "X2"}).CheckHigherGradients();
}

// Squares of these overflow or vanish.
TEST(Atan2, GradientsOfExtremeValues) {
  for (float scale : {1e25f, 1e-25f}) {
    const std::vector<std::pair<std::string, Tensor>> inputs = {
        {"X1", Tensor::Of<float>({2}, {3 * scale, 0})},
        {"X2", Tensor::Of<float>({2}, {-4 * scale, scale})}};
    const std::vector<double> by_x1 = NumbersOf(GradientOf("atan2", {}, inputs, "X1"));
    const std::vector<double> by_x2 = NumbersOf(GradientOf("atan2", {}, inputs, "X2"));
    EXPECT_NEAR(by_x1[0] * scale, -0.16, 1e-6);
    EXPECT_NEAR(by_x1[1] * scale, 1, 1e-6);
    EXPECT_NEAR(by_x2[0] * scale, -0.12, 1e-6);
    EXPECT_EQ(by_x2[1], 0);
  }
}

// At the origin, which has no angle, and where the smaller square vanishes.
TEST(Atan2, GradientsAtTheOrigin) {
  const std::vector<std::pair<std::string, Tensor>> inputs = {
      {"X1", Tensor::Of<float>({3}, {0, 1e-40f, 0})},
      {"X2", Tensor::Of<float>({3}, {0, 0, 1e-40f})}};
  const std::vector<double> by_x1 = NumbersOf(GradientOf("atan2", {}, inputs, "X1"));
  const std::vector<double> by_x2 = NumbersOf(GradientOf("atan2", {}, inputs, "X2"));
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(by_x1, (std::vector<double>{0, 0, inf}));
  EXPECT_EQ(by_x2, (std::vector<double>{0, -inf, 0}));
}

TEST(Atan2, Constraints) {
  OpTest("atan2").RandomInput("X1", {2}).RandomInput("X2", {1}).ExpectError("atan2.C1");
  OpTest("atan2").RandomInput("X1", {1}).IntInput("X2", {1}, {1}).ExpectError("atan2.C2");
}

}  // namespace coracle::atan2_test
