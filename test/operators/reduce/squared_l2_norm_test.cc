#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::squared_l2_norm_test {

TEST(SquaredL2Norm, Values) {
  OpTest("squared_l2_norm")
      .Input("X", {2, 2}, {1, -2, 3, 0.5})
      .Expect("Out", {1}, {14.25})
      .CheckGradient({"X"});
  OpTest("squared_l2_norm").Input("X", {}, {-3}).Expect("Out", {1}, {9}).CheckGradient({"X"});
  OpTest("squared_l2_norm").Input("X", {0}, {}).Expect("Out", {1}, {0});
}

TEST(SquaredL2Norm, FastAgainstReference) {
  for (int64_t n : {1, 17, 2049, 16385, 200003})
    OpTest("squared_l2_norm").RandomInput("X", {n}).CheckFast(1e-6);
}

OpTest Total(float order) {
  OpTest test("total_norm");
  test.Attr("porder", order);
  return test;
}

TEST(TotalNorm, Values) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<double> x = {3, -4, 0, 12};
  Total(2).Input("X", {2, 2}, x).Expect("Out", {1}, {13}).ExpectDType("Out", DType::kFloat64);
  Total(1).Input("X", {4}, x).Expect("Out", {1}, {19});
  Total(3).Input("X", {4}, x).Expect("Out", {1}, {std::cbrt(27 + 64 + 1728)});
  Total(inf).Input("X", {4}, x).Expect("Out", {1}, {12});
  Total(2).Attr("exponent", 2).Input("X", {4}, x).Expect("Out", {1}, {13.0 / 4});
  Total(2).Attr("exponent", INT32_MIN).Input("X", {4}, x).Expect("Out", {1}, {HUGE_VAL});
  Total(2).Attr("exponent", INT32_MAX).Input("X", {4}, x).Expect("Out", {1}, {0});
  Total(2).Input("X", {}, {-3}).Expect("Out", {1}, {3});
  Total(2).Input("X", {0}, {}).Expect("Out", {1}, {0});
  Total(2).RowsInput("X", {4, 2}, {3, 3}, {1, 2, 2, 2}).Expect("Out", {1}, {5});
  Total(1).RowsInput("X", {4, 2}, {3, 3}, {1, 2, -2, 2}).Expect("Out", {1}, {5});
  Total(2).Input("X", {2}, {std::nan(""), 1}).Expect("Out", {1}, {std::nan("")});
  Total(2).Input("X", {2}, {HUGE_VAL, 1}).Expect("Out", {1}, {HUGE_VAL});
  Total(2).IntInput("X", {1}, {1}).ExpectError("total_norm");
}

// An attr is a float, but means a decimal number: 2.2f is 2.2000000477.
TEST(TotalNorm, OrderIsDecimal) {
  Total(2.2f)
      .TensorInput("X", Tensor::Of<double>({2}, {3, 4}))
      .Expect("Out", {1}, {std::pow(std::pow(3, 2.2) + std::pow(4, 2.2), 1 / 2.2)}, 1e-14);
}

// From the smallest number to the largest, of each dtype, where no power of float32 and no square
// of float64 would do.
TEST(TotalNorm, AllFiniteNumbers) {
  for (const float p : {1.f, 2.f, 3.f, 2.5f, 40.f, std::numeric_limits<float>::infinity()}) {
    const double times = std::isinf(p) ? 1 : std::pow(5000, 1 / static_cast<double>(p));
    for (const double x : {1e-45, 3e-39, 1e-25, 1e-3, 1e19, 3e30, 3.4e38}) {
      const auto f = static_cast<float>(x);
      const double norm = static_cast<double>(f) * times;
      OpTest test = Total(p);
      test.TensorInput("X", Tensor::Full<float>({5000}, f))
          .Expect("Out", {1}, {norm}, 2e-7 * std::min(1.0, norm));
    }
    for (const double x : {5e-324, 1e-310, 1e-200, 1e-150, 1e150, 1e200, 1.7e308}) {
      OpTest test = Total(p);
      test.Attr("exponent", x > 1 ? 64 : 0);
      const double expected = x > 1 ? std::ldexp(x, -64) * times : x * times;
      test.TensorInput("X", Tensor::Full<double>({5000}, x))
          .Expect("Out", {1}, {expected}, 1e-12 * std::min(1.0, expected));
    }
  }
}

TEST(TotalNorm, FastAgainstReference) {
  for (const float p : {1.f, 2.f, 3.f, 2.5f, 7.f, std::numeric_limits<float>::infinity()}) {
    for (int64_t n : {1, 17, 2049, 16385, 200003}) Total(p).RandomInput("X", {n}).CheckFast(1e-6);
    Total(p).TensorInput("X", Tensor::Zeros(DType::kFloat32, {20000})).CheckFast(0);
  }
}

}  // namespace coracle::squared_l2_norm_test
