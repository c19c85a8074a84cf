#include <coracle/backward/backward.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace coracle::elementwise_test {

const char* const kOps[] = {"elementwise_add", "elementwise_sub", "elementwise_mul",
                            "elementwise_div", "elementwise_max", "elementwise_min"};

OpTest Two(const std::string& type, const std::vector<double>& x, const std::vector<double>& y) {
  OpTest test(type);
  const auto n = static_cast<int64_t>(x.size());
  test.Input("X", {n}, x).Input("Y", {n}, y);
  return test;
}
OpTest TwoInts(const std::string& type, const std::vector<int64_t>& x,
               const std::vector<int64_t>& y, DType dtype = DType::kInt64) {
  OpTest test(type);
  const auto n = static_cast<int64_t>(x.size());
  test.IntInput("X", {n}, x, dtype).IntInput("Y", {n}, y, dtype);
  return test;
}

TEST(Elementwise, Values) {
  const std::vector<double> x = {1, -2, 3, 8}, y = {4, 5, -2, 2};
  Two("elementwise_add", x, y).Expect("Out", {4}, {5, 3, 1, 10});
  Two("elementwise_sub", x, y).Expect("Out", {4}, {-3, -7, 5, 6});
  Two("elementwise_mul", x, y).Expect("Out", {4}, {4, -10, -6, 16});
  Two("elementwise_div", x, y).Expect("Out", {4}, {0.25, -0.4, -1.5, 4});
  Two("elementwise_max", x, y).Expect("Out", {4}, {4, 5, 3, 8});
  Two("elementwise_min", x, y).Expect("Out", {4}, {1, -2, -2, 2});
  Two("elementwise_pow", x, y).Expect("Out", {4}, {1, -32, 1.0 / 9, 64});
  Two("elementwise_mod", {7, -7, 7, -7}, {3, 3, -3, -3}).Expect("Out", {4}, {1, 2, -2, -1});
  Two("elementwise_floordiv", {7, -7, 7, -7}, {3, 3, -3, -3}).Expect("Out", {4}, {2, -3, -3, 2});
}

TEST(Elementwise, Integers) {
  TwoInts("elementwise_add", {1, 2}, {3, 4}).Expect("Out", {2}, {4, 6});
  TwoInts("elementwise_sub", {1, 2}, {3, 4}, DType::kInt32).Expect("Out", {2}, {-2, -2});
  TwoInts("elementwise_mul", {5, -2}, {3, 4}).Expect("Out", {2}, {15, -8});
  TwoInts("elementwise_div", {7, -7}, {2, 2}).Expect("Out", {2}, {3, -3});
  TwoInts("elementwise_max", {5, -2}, {3, 4}).Expect("Out", {2}, {5, 4});
  TwoInts("elementwise_min", {5, -2}, {3, 4}).Expect("Out", {2}, {3, -2});
  TwoInts("elementwise_pow", {5, -2}, {3, 62}).Expect("Out", {2}, {125, 4611686018427387904.0});
  TwoInts("elementwise_mod", {7, -7}, {3, 3}, DType::kInt32).Expect("Out", {2}, {1, 2});
  TwoInts("elementwise_floordiv", {7, -7}, {2, 2}).Expect("Out", {2}, {3, -4});
}

// 255 is not -1, which its bits mean in a signed type.
TEST(Elementwise, UnsignedDivisors) {
  const auto two = [](const char* type) {
    return TwoInts(type, {0, 1, 254, 255, 200}, {255, 255, 255, 255, 254}, DType::kUInt8);
  };
  two("elementwise_div").Expect("Out", {5}, {0, 0, 0, 1, 0});
  two("elementwise_mod").Expect("Out", {5}, {0, 1, 254, 0, 200});
  two("elementwise_floordiv").Expect("Out", {5}, {0, 0, 0, 1, 0});
}

TEST(Elementwise, IntegerExtremesDoNotTrap) {
  const int64_t low = std::numeric_limits<int32_t>::min();
  TwoInts("elementwise_div", {low}, {-1}, DType::kInt32).Expect("Out", {1}, {-2147483648.0});
  TwoInts("elementwise_mod", {low}, {-1}, DType::kInt32).Expect("Out", {1}, {0});
  TwoInts("elementwise_floordiv", {low}, {-1}, DType::kInt32).Expect("Out", {1}, {-2147483648.0});
  TwoInts("elementwise_add", {low}, {-1}, DType::kInt32).Expect("Out", {1}, {2147483647.0});
  for (const char* type : {"elementwise_div", "elementwise_mod", "elementwise_floordiv"})
    TwoInts(type, {1}, {0}).ExpectError("divided by 0");
}

TEST(Elementwise, NanAndInfinity) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  Two("elementwise_max", {nan, 1, inf}, {1, nan, 2}).Expect("Out", {3}, {nan, nan, inf});
  Two("elementwise_min", {nan, 1, -inf}, {1, nan, 2}).Expect("Out", {3}, {nan, nan, -inf});
  Two("elementwise_div", {1, -1, 0}, {0, 0, 0}).Expect("Out", {3}, {inf, -inf, nan});
}

TEST(Elementwise, HalfTypes) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor x = Tensor::Of<float>({2}, {1.5f, -2.f}).Cast(dtype);
    OpTest("elementwise_mul").TensorInput("X", x).TensorInput("Y", x).Expect("Out", {2}, {2.25, 4});
  }
}

TEST(Elementwise, AxisRule) {
  // Bias over the columns, the rows, and the channels of NCHW.
  OpTest("elementwise_add")
      .Input("X", {2, 3}, {0, 1, 2, 3, 4, 5})
      .Input("Y", {3}, {10, 20, 30})
      .Expect("Out", {2, 3}, {10, 21, 32, 13, 24, 35});
  OpTest("elementwise_add")
      .Attr("axis", 0)
      .Input("X", {2, 3}, {0, 1, 2, 3, 4, 5})
      .Input("Y", {2}, {10, 20})
      .Expect("Out", {2, 3}, {10, 11, 12, 23, 24, 25});
  OpTest("elementwise_add")
      .Attr("axis", 1)
      .Input("X", {2, 2, 1, 2}, {0, 1, 2, 3, 4, 5, 6, 7})
      .Input("Y", {2}, {10, 20})
      .Expect("Out", {2, 2, 1, 2}, {10, 11, 22, 23, 14, 15, 26, 27});
  // Trailing 1s that stick out.
  OpTest("elementwise_sub")
      .Attr("axis", 1)
      .Input("X", {2, 3}, {0, 1, 2, 3, 4, 5})
      .Input("Y", {3, 1}, {1, 2, 3})
      .Expect("Out", {2, 3}, {-1, -1, -1, 2, 2, 2});
  // X is the smaller one.
  OpTest("elementwise_sub")
      .Input("X", {1}, {10})
      .Input("Y", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {2, 2}, {9, 8, 7, 6});
  OpTest("elementwise_div")
      .Attr("axis", 0)
      .Input("X", {2}, {12, 6})
      .Input("Y", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {2, 2}, {12, 6, 2, 1.5});
  // Both stretch.
  OpTest("elementwise_mul")
      .Input("X", {2, 1}, {2, 3})
      .Input("Y", {1, 3}, {1, 10, 100})
      .Expect("Out", {2, 3}, {2, 20, 200, 3, 30, 300});
}

TEST(Elementwise, EdgeShapes) {
  OpTest("elementwise_add").Input("X", {}, {1}).Input("Y", {}, {2}).Expect("Out", {}, {3});
  OpTest("elementwise_add").Input("X", {2}, {1, 2}).Input("Y", {}, {2}).Expect("Out", {2}, {3, 4});
  OpTest("elementwise_add")
      .Input("X", {0, 3}, {})
      .Input("Y", {3}, {1, 2, 3})
      .Expect("Out", {0, 3}, {});
  OpTest("elementwise_add")
      .Input("X", {2, 1}, {1, 2})
      .Input("Y", {2, 0}, {})
      .Expect("Out", {2, 0}, {});
}

TEST(Elementwise, InPlace) {
  for (const char* type : kOps) {
    const auto values = [&](bool in_place) {
      OpTest test(type);
      test.Input("X", {2, 2}, {1, 2, 3, 4}).Input("Y", {2}, {5, 0.5});
      if (in_place) test.InPlace("X", "Out");
      return test.Output("Out");
    };
    EXPECT_TRUE(BitEqual(values(false), values(true))) << type;
  }
}

TEST(Elementwise, FastAgainstReference) {
  struct Case {
    Shape x, y;
    int axis;
  };
  for (const Case& c : {Case{{7}, {7}, -1}, Case{{5, 33}, {33}, -1}, Case{{5, 33}, {5}, 0},
                        Case{{3, 4, 5, 6}, {4}, 1}, Case{{3, 4, 5, 6}, {4, 5}, 1},
                        Case{{1}, {4, 9}, -1}, Case{{4, 9}, {1}, -1}, Case{{4, 1, 3}, {5, 1}, -1},
                        Case{{300, 257}, {257}, -1}, Case{{2, 3, 4, 5, 6}, {3, 1, 5, 1}, 1}}) {
    for (const char* type : kOps) {
      SCOPED_TRACE(c.x.ToString() + " " + c.y.ToString());
      OpTest(type)
          .Attr("axis", c.axis)
          .RandomInput("X", c.x, -1, 1, 0.1)
          .RandomInput("Y", c.y, -1, 1, 0.3)
          .CheckFast(2e-5);
    }
  }
}

TEST(Elementwise, UnknownDims) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetShape({-1, 3, -1});
  block.Var("y").SetShape({3, 5});
  InferOp(block, block.AppendOp("elementwise_add", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"o"}}}),
          DefaultOps());
  EXPECT_EQ(block.FindVar("o")->meta().shape, Shape({-1, 3, 5}));
}

TEST(Elementwise, Constraints) {
  for (const char* name :
       {"elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div",
        "elementwise_max", "elementwise_min", "elementwise_pow", "elementwise_mod",
        "elementwise_floordiv", "elementwise_pow_derivative"}) {
    const std::string type = name;
    OpTest(type)
        .Attr("axis", 3)
        .RandomInput("X", {2, 2})
        .RandomInput("Y", {2})
        .ExpectError(type + ".C1");
    OpTest(type)
        .Attr("axis", -2)
        .RandomInput("X", {2, 2})
        .RandomInput("Y", {2})
        .ExpectError(type + ".C1");
    OpTest(type)
        .Attr("axis", 2)
        .RandomInput("X", {2, 2})
        .RandomInput("Y", {2, 2, 2})
        .ExpectError(type + ".C2");
    OpTest(type).RandomInput("X", {2, 3}).RandomInput("Y", {2}).ExpectError(type + ".C3");
    OpTest(type).RandomInput("X", {2}).IntInput("Y", {2}, {1, 2}).ExpectError(type + ".C4");
  }
}

std::vector<double> PowGradient(DType dtype, const std::vector<double>& x,
                                const std::vector<double>& y, const char* slot) {
  const auto tensor = [&](const std::vector<double>& numbers) {
    const auto n = static_cast<int64_t>(numbers.size());
    return Tensor::Of<double>({n}, numbers).Cast(dtype);
  };
  return NumbersOf(GradientOf("elementwise_pow", {}, {{"X", tensor(x)}, {"Y", tensor(y)}}, slot));
}
void ExpectNumbers(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(std::isnan(got[i]), std::isnan(want[i])) << i;
    if (std::isnan(want[i]) || got[i] == want[i]) continue;
    EXPECT_NEAR(got[i], want[i], 1e-6 * std::abs(want[i])) << i;
  }
}

// As PyTorch has them: no bound of the logarithm, and 0 at 0^0.
TEST(Elementwise, PowGradientsAtTheEdges) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const std::vector<double> x = {0, 0, 0, 0, 0, -2, -2, 2, -3}, y = {0, 0.5, 1, 1.5, 2, 2, 3, 0, 0};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    ExpectNumbers(PowGradient(dtype, x, y, "X"), {0, inf, 1, 0, 0, -4, 12, 0, 0});
    const std::vector<double> by_y = PowGradient(dtype, x, y, "Y");
    const double log2 = dtype == DType::kBFloat16 ? 0.69140625 : std::log(2.0);
    ExpectNumbers(by_y, {0, 0, 0, 0, 0, nan, nan, log2, nan});
  }
  ExpectNumbers(
      PowGradient(DType::kFloat64, {1e-100, 1e-300, 1e300, 1e-310}, {0.1, 1, 0.5, 1}, "Y"),
      {std::pow(1e-100, 0.1) * std::log(1e-100), 1e-300 * std::log(1e-300), 1e150 * std::log(1e300),
       1e-310 * std::log(1e-310)});
}

OpTest PowDerivative(int32_t by_x, int32_t by_y) {
  return OpTest("elementwise_pow_derivative").Attr("x_order", by_x).Attr("y_order", by_y);
}

TEST(ElementwisePowDerivative, Values) {
  const std::vector<double> x = {2, 3, 0.5, 1}, y = {3, 0.5, -1, 4};
  const auto expect = [&](int32_t by_x, int32_t by_y,
                          const std::function<double(double, double)>& f) {
    std::vector<double> want;
    for (size_t i = 0; i < x.size(); ++i) want.push_back(f(x[i], y[i]));
    PowDerivative(by_x, by_y).Input("X", {4}, x).Input("Y", {4}, y).Expect("Out", {4}, want);
  };
  expect(0, 0, [](double a, double b) { return std::pow(a, b); });
  expect(1, 0, [](double a, double b) { return b * std::pow(a, b - 1); });
  expect(0, 1, [](double a, double b) { return std::pow(a, b) * std::log(a); });
  expect(2, 0, [](double a, double b) { return b * (b - 1) * std::pow(a, b - 2); });
  expect(1, 1, [](double a, double b) { return std::pow(a, b - 1) * (1 + b * std::log(a)); });
  expect(0, 2, [](double a, double b) { return std::pow(a, b) * std::log(a) * std::log(a); });
  expect(2, 1, [](double a, double b) {
    return std::pow(a, b - 2) * (2 * b - 1 + b * (b - 1) * std::log(a));
  });
}

// The second order at 0: no derivative of 0^0, and a logarithm counts less than a power.
TEST(ElementwisePowDerivative, ValuesAtZero) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> x = {0, 0, 0, 0, 0}, y = {0, 1, 2, 3, 1.5};
  const auto run = [&](int32_t by_x, int32_t by_y) {
    return PowDerivative(by_x, by_y).Input("X", {5}, x).Input("Y", {5}, y);
  };
  run(2, 0).Expect("Out", {5}, {0, 0, 2, 0, inf});
  run(1, 1).Expect("Out", {5}, {0, 1, 0, 0, 0});
  run(0, 2).Expect("Out", {5}, {0, 0, 0, 0, 0});
  // At an exponent of 0 the mixed derivative is 1 / X.
  PowDerivative(1, 1).Input("X", {1}, {4}).Input("Y", {1}, {0}).Expect("Out", {1}, {0.25});
}

// A power that is 0 beats infinite factors, and the highest power of an infinite logarithm decides.
TEST(ElementwisePowDerivative, ValuesAtInfinities) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const std::vector<double> x = {inf, inf, inf, inf, 0.5, 2, 1, 0, -inf, -0.5};
  const std::vector<double> y = {-2, -0.5, 0, 1, inf, -inf, inf, -2, -3, inf};
  const auto expect = [&](int32_t by_x, int32_t by_y, const std::vector<double>& want) {
    PowDerivative(by_x, by_y).Input("X", {10}, x).Input("Y", {10}, y).Expect("Out", {10}, want);
  };
  expect(1, 0, {0, 0, 0, 1, 0, 0, inf, -inf, 0, 0});
  expect(0, 1, {0, 0, inf, inf, 0, 0, 0, -inf, nan, nan});
  expect(1, 1, {0, 0, 0, inf, 0, 0, 1, inf, nan, nan});
  expect(0, 2, {0, 0, inf, inf, 0, 0, 0, inf, nan, nan});
  expect(2, 1, {0, 0, 0, 0, 0, 0, inf, -inf, nan, nan});
}

TEST(ElementwisePowDerivative, Gradients) {
  for (const auto& [by_x, by_y] : {std::pair{0, 0}, {1, 0}, {0, 1}, {1, 2}}) {
    OpTest test = PowDerivative(by_x, by_y);
    test.RandomInput("X", {2, 3}, 0.5, 2).RandomInput("Y", {3}, 0.5, 2);
    test.CheckGradient({"X", "Y"}).CheckHigherGradients();
  }
}

TEST(Elementwise, GradientInAProgramThatNobodyHasVerified) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetShape({2, 3});
  root.Var("y").SetShape({3, 1});
  root.Var("sum").SetShape({2, 3});
  root.Var("loss").SetShape({1});
  root.AppendOp("elementwise_add", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"sum"}}},
                {{"axis", std::numeric_limits<int32_t>::max()}});
  root.AppendOp("mean", {{"X", {"sum"}}}, {{"Out", {"loss"}}});
  EXPECT_THROW(AppendBackward(Variable::Of(root, "loss"), {.parameter_list = {"y"}}), Error);
}

// Maxima and minima of bytes have loops of their own: of two tensors, and of one with a number or
// with a number for each row, on either side.
TEST(Elementwise, ExtremaOfBytes) {
  std::mt19937 random(3);
  const auto drawn = [&](const Shape& shape) {
    std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
    for (int64_t& v : values) v = static_cast<int64_t>(random() % 128) - 64;
    return values;
  };
  const Shape whole = {3, 71};
  for (const bool is_signed : {true, false}) {
    for (const Shape& shape : {whole, Shape{1}, Shape{3, 1}, Shape{71}}) {
      for (const bool swapped : {false, true}) {
        std::vector<int64_t> a = drawn(whole), b = drawn(shape);
        for (int64_t i = 0; !is_signed && i < whole.numel(); ++i) a[static_cast<size_t>(i)] += 150;
        for (int64_t i = 0; !is_signed && i < shape.numel(); ++i) b[static_cast<size_t>(i)] += 150;
        std::vector<double> most, least;
        for (int64_t i = 0; i < whole.numel(); ++i) {
          const int64_t at = shape.rank() == 1 ? i % shape[0] : i / (213 / shape.numel());
          const int64_t x = a[static_cast<size_t>(i)], y = b[static_cast<size_t>(at)];
          most.push_back(static_cast<double>(std::max(x, y)));
          least.push_back(static_cast<double>(std::min(x, y)));
        }
        const DType dtype = is_signed ? DType::kInt8 : DType::kUInt8;
        for (const bool max : {true, false}) {
          OpTest(max ? "elementwise_max" : "elementwise_min")
              .IntInput("X", swapped ? shape : whole, swapped ? b : a, dtype)
              .IntInput("Y", swapped ? whole : shape, swapped ? a : b, dtype)
              .Expect("Out", whole, max ? most : least);
        }
      }
    }
  }
}

}  // namespace coracle::elementwise_test
