#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>
#include <limits>

namespace coracle::logsumexp_test {

using Ints = std::vector<int32_t>;
const double kInf = std::numeric_limits<double>::infinity();

OpTest Over(const Ints& axis) {
  OpTest test("logsumexp");
  test.Attr("axis", axis);
  return test;
}

TEST(Logsumexp, Values) {
  const std::vector<double> x = {0, std::log(3), 1, 1};
  Over({1}).Input("X", {2, 2}, x).Expect("Out", {2}, {std::log(4), 1 + std::log(2)});
  Over({0})
      .Input("X", {2, 2}, x)
      .Expect("Out", {2}, {std::log(1 + std::exp(1)), std::log(3 + std::exp(1))});
  const double all = std::log(4 + 2 * std::exp(1));
  Over({0, -1}).Input("X", {2, 2}, x).Expect("Out", {1}, {all});
  Over({}).Input("X", {2, 2}, x).Expect("Out", {1}, {all});
  Over({1})
      .Attr("reduce_all", true)
      .Attr("keepdim", true)
      .Input("X", {2, 2}, x)
      .Expect("Out", {1, 1}, {all});
  Over({-1})
      .Attr("keepdim", true)
      .Input("X", {1, 2}, {2, 2})
      .Expect("Out", {1, 1}, {2 + std::log(2)});
}

TEST(Logsumexp, ExtremeValues) {
  Over({0}).Input("X", {2}, {1e4, 1e4}).Expect("Out", {1}, {1e4 + std::log(2)});
  Over({0}).Input("X", {2}, {-1e4, -1e4}).Expect("Out", {1}, {-1e4 + std::log(2)});
  Over({0}).Input("X", {2}, {-kInf, -kInf}).Expect("Out", {1}, {-kInf});
  Over({0}).Input("X", {2}, {-kInf, 3}).Expect("Out", {1}, {3});
  Over({0}).Input("X", {2}, {kInf, 3}).Expect("Out", {1}, {kInf});
  Over({0}).Input("X", {2}, {kInf, std::nan("")}).Expect("Out", {1}, {std::nan("")});
}

TEST(Logsumexp, Edges) {
  Over({0}).Input("X", {}, {5}).Expect("Out", {1}, {5});
  Over({1}).Input("X", {2, 0}, {}).Expect("Out", {2}, {-kInf, -kInf});
  Over({1}).Input("X", {0, 2}, {}).Expect("Out", {0}, {});
}

TEST(Logsumexp, Gradients) {
  for (const Ints& axis : {Ints{0}, Ints{1}, Ints{-1}, Ints{0, 2}, Ints{}}) {
    for (bool keep : {false, true}) {
      OpTest test = Over(axis);
      test.Attr("keepdim", keep).RandomInput("X", {2, 3, 2}, -2, 2).CheckGradient({"X"});
    }
  }
  Over({0}).RandomInput("X", {}).CheckGradient({"X"});
  Over({1}).RandomInput("X", {2, 3}).CheckHigherGradients();
}

TEST(Logsumexp, GradientsOfExtremeValues) {
  const auto gradient = [](const Tensor& x) {
    return NumbersOf(GradientOf("logsumexp", {{"axis", Ints{1}}}, {{"X", x}}, "X"));
  };
  using Numbers = std::vector<double>;
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(gradient(Tensor::Of<double>({1, 2}, {-kInf, -kInf})), (Numbers{0, 0}));
  EXPECT_EQ(gradient(Tensor::Of<double>({1, 2}, {-kInf, 3})), (Numbers{0, 1}));
  EXPECT_EQ(gradient(Tensor::Of<double>({1, 2}, {kInf, 3})), (Numbers{1, 0}));
  EXPECT_EQ(gradient(Tensor::Of<double>({1, 2}, {kInf, -kInf})), (Numbers{1, 0}));
  EXPECT_EQ(gradient(Tensor::Of<double>({1, 2}, {-1e300, -2e300})), (Numbers{1, 0}));
  EXPECT_EQ(gradient(Tensor::Of<double>({1, 2}, {1e300, -2e300})), (Numbers{1, 0}));
  EXPECT_EQ(gradient(Tensor::Of<float>({1, 2}, {-3.2e38f, -inf})), (Numbers{1, 0}));
  EXPECT_EQ(gradient(Tensor::Of<float>({1, 2}, {inf, 3})), (Numbers{1, 0}));
  EXPECT_TRUE(std::isnan(gradient(Tensor::Of<float>({1, 2}, {std::nanf(""), 3}))[0]));
}

TEST(Logsumexp, C1_Axis) { Over({2}).RandomInput("X", {2, 3}).ExpectError("logsumexp.C1"); }
TEST(Logsumexp, C2_Twice) { Over({1, -1}).RandomInput("X", {2, 3}).ExpectError("logsumexp.C2"); }

}  // namespace coracle::logsumexp_test
