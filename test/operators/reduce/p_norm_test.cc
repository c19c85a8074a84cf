#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::p_norm_test {

const float kInf = std::numeric_limits<float>::infinity();

OpTest Order(float order, int32_t axis = -1) {
  OpTest test("p_norm");
  test.Attr("porder", order).Attr("axis", axis);
  return test;
}

TEST(PNorm, Values) {
  const std::vector<double> x = {3, -4, 0, 1, -2, 2};
  Order(2).Input("X", {2, 3}, x).Expect("Out", {2}, {5, 3});
  Order(1).Input("X", {2, 3}, x).Expect("Out", {2}, {7, 5});
  Order(0).Input("X", {2, 3}, x).Expect("Out", {2}, {2, 3});
  Order(kInf).Input("X", {2, 3}, x).Expect("Out", {2}, {4, 2});
  Order(-kInf).Input("X", {2, 3}, x).Expect("Out", {2}, {0, 1});
  Order(3).Input("X", {2, 3}, x).Expect("Out", {2}, {std::cbrt(91), std::cbrt(17)});
  Order(2, 0).Input("X", {2, 3}, x).Expect("Out", {3}, {std::sqrt(10), std::sqrt(20), 2});
  Order(2, 0).Attr("keepdim", true).Input("X", {2, 1}, {3, 4}).Expect("Out", {1, 1}, {5});
  Order(1).Attr("asvector", true).Input("X", {2, 3}, x).Expect("Out", {1}, {12});
  Order(1)
      .Attr("asvector", true)
      .Attr("keepdim", true)
      .Input("X", {2, 3}, x)
      .Expect("Out", {1, 1}, {12});
}

TEST(PNorm, Edges) {
  Order(2).Input("X", {}, {-3}).Expect("Out", {1}, {3});
  Order(2).Input("X", {3}, {-1, 2, 2}).Expect("Out", {1}, {3});
  Order(2).Input("X", {2, 0}, {}).Expect("Out", {2}, {0, 0});
  Order(2).Input("X", {0, 2}, {}).Expect("Out", {0}, {});
  for (float order : {1.f, 2.f, 3.f, kInf, -kInf})
    Order(order).Input("X", {2}, {std::nan(""), 1}).Expect("Out", {1}, {std::nan("")});
  Order(2).Input("X", {2}, {3e30, 4e30}).Expect("Out", {1}, {5e30});
}

TEST(PNorm, Gradients) {
  for (float order : {1.f, 2.f, 3.f, 2.5f, 0.5f, kInf, -kInf}) {
    for (int32_t axis : {0, 1, -1}) {
      OpTest test = Order(order, axis);
      test.RandomInput("X", {2, 3, 2}, -2, 2, 0.3).CheckGradient({"X"});
    }
    OpTest test = Order(order);
    test.Attr("asvector", true).RandomInput("X", {2, 3}, -2, 2, 0.3).CheckGradient({"X"});
  }
  Order(2, 0).Attr("keepdim", true).RandomInput("X", {2, 3}).CheckGradient({"X"});
  Order(2).RandomInput("X", {}).CheckGradient({"X"});
  for (float order : {2.f, 3.f})
    Order(order, 0).RandomInput("X", {2, 3}, 0.5, 2).CheckHigherGradients();
}

TEST(PNorm, GradientsOfNans) {
  for (float order : {1.f, 2.f, 3.f, kInf, -kInf}) {
    const Tensor x = Tensor::Of<float>({3}, {1, std::nanf(""), 2});
    const std::vector<double> got =
        NumbersOf(GradientOf("p_norm", {{"porder", order}}, {{"X", x}}, "X"));
    EXPECT_TRUE(std::isnan(got[1])) << order;
  }
}

TEST(PNorm, GradientsOfUnusualOrders) {
  const auto gradient = [](float order, const Tensor& x) {
    return NumbersOf(GradientOf("p_norm", {{"porder", order}}, {{"X", x}}, "X"));
  };
  // |X| / Out is below the smallest double, its power is not.
  const Tensor apart = Tensor::Of<double>({2}, {1e-300, 1e300});
  EXPECT_NEAR(gradient(0.5f, apart)[0] / 1e300, 1, 1e-11);
  EXPECT_NEAR(gradient(1.01f, apart)[0] / std::pow(10, -600 * (1.01f - 1.0)), 1, 1e-10);
  // The rounding of a float32 Out would count 1e7 times.
  EXPECT_NEAR(gradient(1e7f, Tensor::Of<float>({2}, {1, 1}))[0], 0.5, 1e-6);
}

// Powers of |X| and Out alone would overflow, vanish or be infinite.
TEST(PNorm, GradientsOfExtremeValues) {
  const auto gradient = [](float order, std::initializer_list<float> x) {
    return NumbersOf(GradientOf("p_norm", {{"porder", order}},
                                {{"X", Tensor::Of<float>({static_cast<int64_t>(x.size())}, x)}},
                                "X"));
  };
  const double part = std::pow(2, -0.75);  // (1 / 2^(1/4))^3
  for (float scale : {1e-7f, 1.f, 1e18f}) {
    const std::vector<double> by_x = gradient(4, {scale, -scale, 0});
    EXPECT_NEAR(by_x[0], part, 1e-3) << scale;
    EXPECT_NEAR(by_x[1], -part, 1e-3) << scale;
    EXPECT_EQ(by_x[2], 0) << scale;
  }
  EXPECT_EQ(gradient(0.5f, {4, 0}), (std::vector<double>{1, 0}));
  EXPECT_EQ(gradient(1.5f, {0, 0}), (std::vector<double>{0, 0}));
}

// The norm and its gradient from the smallest number to the largest. Powers of these, and epsilon,
// would leave nothing of them.
TEST(PNorm, AllFiniteNumbers) {
  const auto check = [](auto zero, double x, double tolerance) {
    using T = decltype(zero);
    const Tensor all = Tensor::Full<T>({3}, static_cast<T>(x));
    for (const float p : {1.f, 2.f, 3.f, 40.f}) {
      SCOPED_TRACE(testing::Message() << x << " p " << p);
      const double norm = static_cast<double>(static_cast<T>(x)) * std::pow(3, 1 / double{p});
      Order(p).TensorInput("X", all).Expect("Out", {1}, {norm}, tolerance * std::min(1.0, norm));
      const double slope = std::pow(3, 1 / double{p} - 1);
      for (const double dx : NumbersOf(GradientOf("p_norm", {{"porder", p}}, {{"X", all}}, "X")))
        EXPECT_NEAR(dx, slope, 1e-5);
      if (p != 2) continue;
      const AttrList attrs = {{"dim", std::vector<int32_t>{0}}};
      for (const double dx : NumbersOf(GradientOf("frobenius_norm", attrs, {{"X", all}}, "X")))
        EXPECT_NEAR(dx, slope, 1e-5);
    }
  };
  for (const double x : {1e-38, 1e-30, 1e-25, 1e19, 1e38}) check(float(), x, 1e-6);
  for (const double x : {1e-300, 1e-200, 1e-170, 1e160, 1e200, 5e307}) check(double(), x, 1e-13);
}

// The slopes of a norm, by float64.
std::vector<double> Slopes(const std::vector<double>& x, double p) {
  const double largest = std::abs(*std::max_element(
      x.begin(), x.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
  double sum = 0;
  for (const double v : x) sum += std::pow(std::abs(v / largest), p);
  const double norm = std::pow(sum, 1 / p);
  std::vector<double> slopes;
  for (const double v : x)
    slopes.push_back(std::copysign(std::pow(std::abs(v / largest) / norm, p - 1), v));
  return slopes;
}

// The norm is more than the dtype holds, or a number of few digits, and its slope is neither.
TEST(PNorm, GradientsWhereTheNormHasNoDigits) {
  struct Case {
    DType dtype;
    std::vector<double> x;
    double tolerance;
  };
  for (const Case& c : {Case{DType::kFloat16, {60000, -60000, 30000}, 1e-3},
                        Case{DType::kFloat16, {6e-8, -6e-8, 12e-8}, 1e-3},
                        Case{DType::kBFloat16, {3e38, -3e38, 1.5e38}, 1e-2},
                        Case{DType::kFloat32, {3e38, -3e38, 1.5e38}, 1e-6},
                        Case{DType::kFloat32, {1.4e-45, -1.4e-45, 2.8e-45}, 1e-6},
                        Case{DType::kFloat64, {1.7e308, -1.7e308, 1e308}, 1e-14},
                        Case{DType::kFloat64, {5e-324, -5e-324, 1e-323}, 1e-14}}) {
    const Tensor x = Tensor::Of<double>({3}, c.x).Cast(c.dtype);
    for (const float p : {1.f, 2.f, 3.f, 1.5f}) {
      SCOPED_TRACE(testing::Message() << ToString(c.dtype) << " " << c.x[0] << " p " << p);
      const std::vector<double> slopes = Slopes(NumbersOf(x), double{p});
      const auto check = [&](const std::vector<double>& dx) {
        for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(dx[i], slopes[i], c.tolerance) << i;
      };
      check(NumbersOf(GradientOf("p_norm", {{"porder", p}}, {{"X", x}}, "X")));
      const Tensor y = Tensor::Zeros(c.dtype, {3});
      check(NumbersOf(GradientOf("dist", {{"p", p}}, {{"X", x}, {"Y", y}}, "X")));
      if (p != 2) continue;
      for (const int32_t out : {-1, static_cast<int32_t>(DType::kFloat64)}) {
        const AttrList attrs = {{"dim", std::vector<int32_t>{0}}, {"out_dtype", out}};
        check(NumbersOf(GradientOf("frobenius_norm", attrs, {{"X", x}}, "X")));
      }
    }
  }
}

// Neighbouring slices, some with extreme numbers: each norm is the norm of its vector alone. 7
// slices of many rows are summed in parts.
TEST(PNorm, SlicesOfAllSizes) {
  const auto check = [](DType dtype, const std::vector<double>& sizes, int64_t rows,
                        int64_t columns) {
    SCOPED_TRACE(testing::Message() << ToString(dtype) << " " << rows << " rows");
    std::vector<double> x, norms;
    const auto size_of = [&](int64_t j) { return sizes[static_cast<size_t>(j) % sizes.size()]; };
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        x.push_back(size_of(j) * static_cast<double>(i % 3 + 1));
    for (int64_t j = 0; j < columns; ++j)
      norms.push_back(size_of(j) * std::sqrt(14 * static_cast<double>(rows / 3)));
    const Tensor all = Tensor::Of<double>({rows, columns}, x).Cast(dtype);
    const double tolerance = dtype == DType::kFloat64 ? 1e-11 : 1e-6;
    const AttrList attrs = {{"axis", int32_t{0}}}, dims = {{"dim", std::vector<int32_t>{0}}};
    ExpectSameNumbers(ValueOf("p_norm", attrs, {{"X", all}}), norms, tolerance);
    ExpectSameNumbers(ValueOf("frobenius_norm", dims, {{"X", all}}), norms, tolerance);
    std::vector<double> slopes;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        slopes.push_back(size_of(j) == 0 ? 0
                                         : static_cast<double>(i % 3 + 1) /
                                               std::sqrt(14 * static_cast<double>(rows / 3)));
    ExpectSameNumbers(GradientOf("p_norm", attrs, {{"X", all}}, "X"), slopes, tolerance);
    ExpectSameNumbers(GradientOf("frobenius_norm", dims, {{"X", all}}, "X"), slopes, tolerance);
  };
  const std::vector<double> floats = {1, 1e-30, 3e20, 0, 1e30, 2};
  const std::vector<double> doubles = {1, 1e-200, 3e160, 0, 1e300, 2, 1e-310};
  for (const int64_t rows : {3, 12000}) {
    const int64_t columns = rows == 3 ? 300 : 7;
    check(DType::kFloat32, floats, rows, columns);
    check(DType::kFloat64, doubles, rows, columns);
    check(DType::kFloat64, {1, 2}, rows, columns);
  }
}

TEST(PNorm, SlicesWithoutNumbers) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Tensor x = Tensor::Of<double>({2, 4}, {inf, nan, 3, 0, 1, 1, 4, 0}).Cast(dtype);
    OpTest test = Order(2, 0);
    test.TensorInput("X", x).Expect("Out", {4}, {inf, nan, 5, 0});
  }
}

// Where an element is 0, it is the norm of negative order, and all slopes are 0.
TEST(PNorm, NegativeOrders) {
  for (const float p : {-1.f, -2.f}) {
    const Tensor x = Tensor::Of<double>({3}, {0, 2, 3e10}), some = Tensor::Of<double>({2}, {2, -4});
    EXPECT_EQ(NumbersOf(GradientOf("p_norm", {{"porder", p}}, {{"X", x}}, "X")),
              (std::vector<double>{0, 0, 0}));
    const double norm = std::pow(std::pow(2, p) + std::pow(4, p), 1 / static_cast<double>(p));
    ExpectSameNumbers(GradientOf("p_norm", {{"porder", p}}, {{"X", some}}, "X"),
                      {std::pow(2 / norm, p - 1), -std::pow(4 / norm, p - 1)}, 1e-14);
  }
}

// With Out or without; Out is not read where it has lost digits.
TEST(PNormGrad, Values) {
  const Tensor x = Tensor::Of<float>({2, 2}, {3, -4, 0, 0}), dout = Tensor::Of<float>({2}, {2, 3});
  const std::vector<double> expected = {1.2, -1.6, 0, 0};
  ExpectSameNumbers(ValueOf("p_norm_grad", {}, {{"X", x}, {"Out@GRAD", dout}}, "X@GRAD"), expected,
                    1e-6);
  ExpectSameNumbers(
      ValueOf("p_norm_grad", {},
              {{"X", x}, {"Out", Tensor::Of<float>({2}, {5, 0})}, {"Out@GRAD", dout}}, "X@GRAD"),
      expected, 1e-6);
  // The quotient Out@GRAD / Out alone would overflow.
  const Tensor tiny = Tensor::Full<double>({4}, 1e-310), large = Tensor::Full<double>({1}, 1e300);
  ExpectSameNumbers(ValueOf("p_norm_grad", {}, {{"X", tiny}, {"Out@GRAD", large}}, "X@GRAD"),
                    std::vector<double>(4, 5e299), 1e-13);
}

TEST(PNormGrad, HigherGradients) {
  for (const float order : {1.5f, -1.f, 4.f})
    Order(order, 0).RandomInput("X", {2, 3}, 0.5, 2).CheckHigherGradients();
  OpTest whole = Order(3);
  whole.Attr("asvector", true).RandomInput("X", {2, 3}, 0.5, 2).CheckHigherGradients();
}

TEST(PNormGrad, Constraints) {
  const auto test = [] {
    OpTest made("p_norm_grad");
    made.RandomInput("X", {2, 3});
    return made;
  };
  test().Attr("axis", 2).RandomInput("Out@GRAD", {2}).ExpectError("p_norm_grad.C1");
  test().RandomInput("Out@GRAD", {3}).ExpectError("p_norm_grad.C2");
  test().RandomInput("Out@GRAD", {2}).RandomInput("Out", {3}).ExpectError("p_norm_grad.C2");
  test().IntInput("Out@GRAD", {2}, {1, 1}).ExpectError("p_norm_grad.C3");
}

TEST(FrobeniusNormGrad, Constraints) {
  const auto test = [](const std::vector<int32_t>& dim) {
    OpTest made("frobenius_norm_grad");
    made.Attr("dim", dim).RandomInput("X", {2, 3});
    return made;
  };
  test({2}).RandomInput("Out@GRAD", {2}).ExpectError("frobenius_norm_grad.C1");
  test({1, -1}).RandomInput("Out@GRAD", {2}).ExpectError("frobenius_norm_grad.C2");
  test({1}).RandomInput("Out@GRAD", {3}).ExpectError("frobenius_norm_grad.C4");
  test({1}).IntInput("Out@GRAD", {2}, {1, 1}).ExpectError("frobenius_norm_grad.C5");
}

TEST(PNorm, C1_Axis) { Order(2, 2).RandomInput("X", {2, 3}).ExpectError("p_norm.C1"); }

TEST(L1Norm, Values) {
  OpTest("l1_norm").Input("X", {2, 2}, {1, -2, 0, 4}).Expect("Out", {1}, {7});
  OpTest("l1_norm").Input("X", {}, {-4}).Expect("Out", {1}, {4});
  OpTest("l1_norm").Input("X", {0}, {}).Expect("Out", {1}, {0});
}

TEST(L1Norm, Gradients) {
  OpTest("l1_norm").RandomInput("X", {2, 3}, -1, 1, 0.1).CheckGradient({"X"});
  OpTest("l1_norm").RandomInput("X", {}, 0.5, 1).CheckGradient({"X"});
  OpTest("l1_norm").RandomInput("X", {2, 3}, -1, 1, 0.1).CheckHigherGradients();
}

}  // namespace coracle::p_norm_test
