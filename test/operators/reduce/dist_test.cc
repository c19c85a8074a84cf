#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>
#include <limits>

namespace coracle::dist_test {

const float kInf = std::numeric_limits<float>::infinity();

OpTest Order(float order) {
  OpTest test("dist");
  test.Attr("p", order);
  return test;
}

TEST(Dist, Values) {
  const std::vector<double> x = {4, -3, 1, 2}, y = {1, 1, 1, 2};
  const auto test = [&](float order) {
    OpTest t = Order(order);
    t.Input("X", {2, 2}, x).Input("Y", {2, 2}, y);
    return t;
  };
  test(2).Expect("Out", {1}, {5});
  test(1).Expect("Out", {1}, {7});
  test(0).Expect("Out", {1}, {2});
  test(kInf).Expect("Out", {1}, {4});
  test(-kInf).Expect("Out", {1}, {0});
  test(3).Expect("Out", {1}, {std::cbrt(91)});
}

TEST(Dist, OperandsRepeat) {
  Order(1).Input("X", {2, 2}, {1, 2, 3, 4}).Input("Y", {2}, {1, 1}).Expect("Out", {1}, {6});
  Order(1).Input("X", {2, 1}, {1, 2}).Input("Y", {1, 2}, {0, 5}).Expect("Out", {1}, {10});
  Order(1).Input("X", {4}, {1, 2, 3, 4}).Input("Y", {2}, {1, 2}).Expect("Out", {1}, {4});
  Order(1)
      .Input("X", {2}, {1, 2})
      .Input("Y", {2, 4}, {1, 2, 1, 2, 1, 2, 1, 5})
      .Expect("Out", {1}, {3});
}

TEST(Dist, Edges) {
  Order(2).Input("X", {}, {1}).Input("Y", {}, {4}).Expect("Out", {1}, {3});
  Order(2).Input("X", {0, 2}, {}).Input("Y", {2}, {1, 2}).Expect("Out", {1}, {0});
  Order(2).Input("X", {1}, {std::nan("")}).Input("Y", {1}, {4}).Expect("Out", {1}, {std::nan("")});
}

TEST(Dist, Gradients) {
  for (float order : {1.f, 2.f, 3.f, kInf, -kInf}) {
    Order(order).RandomInput("X", {2, 3}, 2, 3).RandomInput("Y", {2, 3}).CheckGradient({"X", "Y"});
    Order(order).RandomInput("X", {2, 3}, 2, 3).RandomInput("Y", {3}).CheckGradient({"X", "Y"});
    Order(order).RandomInput("X", {2, 2}, 2, 3).RandomInput("Y", {4, 1}).CheckGradient({"X", "Y"});
  }
  Order(2).RandomInput("X", {}, 2, 3).RandomInput("Y", {}).CheckGradient({"X", "Y"});
  Order(2).RandomInput("X", {2, 3}, 2, 3).RandomInput("Y", {3}).CheckHigherGradients();
}

TEST(Dist, GradientsOfExtremeValues) {
  const Tensor zeros = Tensor::Of<float>({3}, {0, 0, 0});
  for (float scale : {1e-6f, 1e17f}) {
    const std::vector<double> by_x = NumbersOf(
        GradientOf("dist", {{"p", 4.f}},
                   {{"X", Tensor::Of<float>({3}, {scale, -scale, 0})}, {"Y", zeros}}, "X"));
    EXPECT_NEAR(by_x[0], std::pow(2, -0.75), 1e-3);
    EXPECT_NEAR(by_x[1], -std::pow(2, -0.75), 1e-3);
    EXPECT_EQ(by_x[2], 0);
  }
  const Tensor x = Tensor::Of<float>({3}, {4, 0, 0});
  EXPECT_EQ(NumbersOf(GradientOf("dist", {{"p", 0.5f}}, {{"X", x}, {"Y", zeros}}, "Y"))[1], 0);
}

// The difference of 16-bit numbers is larger than all of them.
TEST(Dist, GradientsOfLargeDifferences) {
  const Tensor x = Tensor::Of<double>({2}, {60000, 30000}).Cast(DType::kFloat16);
  const Tensor y = Tensor::Of<double>({2}, {-60000, -30000}).Cast(DType::kFloat16);
  for (const char* slot : {"X", "Y"}) {
    const double sign = slot[0] == 'X' ? 1 : -1;
    const std::vector<double> slopes =
        NumbersOf(GradientOf("dist", {{"p", 2.f}}, {{"X", x}, {"Y", y}}, slot));
    EXPECT_NEAR(slopes[0], sign * 2 / std::sqrt(5), 1e-3);
    EXPECT_NEAR(slopes[1], sign / std::sqrt(5), 1e-3);
    EXPECT_EQ(NumbersOf(GradientOf("dist", {{"p", kInf}}, {{"X", x}, {"Y", y}}, slot)),
              (std::vector<double>{sign, 0}));
  }
}

TEST(Dist, C1_Dims) { Order(2).RandomInput("X", {4}).RandomInput("Y", {3}).ExpectError("dist.C1"); }
TEST(Dist, C2_DTypes) {
  Order(2).RandomInput("X", {1}).IntInput("Y", {1}, {1}).ExpectError("dist.C2");
}

}  // namespace coracle::dist_test
