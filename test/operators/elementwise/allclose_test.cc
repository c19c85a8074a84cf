#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::allclose_test {

OpTest Allclose(std::vector<double> x, std::vector<double> y) {
  const Shape shape{static_cast<int64_t>(x.size())};
  OpTest test("allclose");
  test.Input("Input", shape, x).Input("Other", shape, y);
  return test;
}

TEST(Allclose, Values) {
  const double nan = std::nan(""), inf = INFINITY;
  Allclose({1, 2}, {1, 2 + 1e-5}).Expect("Out", {1}, {1}).ExpectDType("Out", DType::kBool);
  Allclose({1, 2}, {1, 2 + 3e-5}).Expect("Out", {1}, {0});
  Allclose({inf, -inf}, {inf, -inf}).Expect("Out", {1}, {1});
  Allclose({inf}, {-inf}).Expect("Out", {1}, {0});
  Allclose({1}, {inf}).Expect("Out", {1}, {0});
  Allclose({inf}, {1}).Expect("Out", {1}, {0});
  Allclose({1}, {2}).Attr("rtol", std::string("inf")).Expect("Out", {1}, {1});
  Allclose({1}, {2}).Attr("atol", std::string("nan")).Expect("Out", {1}, {0});
  Allclose({1, nan}, {1, inf}).Attr("equal_nan", true).Expect("Out", {1}, {0});
  Allclose({1}, {nan}).Attr("equal_nan", true).Expect("Out", {1}, {0});
  Allclose({nan}, {nan}).Expect("Out", {1}, {0});
  Allclose({nan}, {nan}).Attr("equal_nan", true).Expect("Out", {1}, {1});
  Allclose({}, {}).Expect("Out", {1}, {1});
}

TEST(Allclose, Tolerances) {
  Allclose({1}, {1.5})
      .Attr("rtol", std::string("0"))
      .Attr("atol", std::string("0.5"))
      .Expect("Out", {1}, {1});
  Allclose({1}, {2}).Attr("rtol", std::string("0.25")).Expect("Out", {1}, {0});
  Allclose({1}, {2}).Attr("rtol", std::string("0.5")).Expect("Out", {1}, {1});
  // Old files hold floats.
  Allclose({1}, {2}).Attr("rtol", 0.5f).Attr("atol", 0.f).Expect("Out", {1}, {1});
  Allclose({1}, {2})
      .TensorInput("Rtol", Tensor::Of<double>({1}, {0}))
      .TensorInput("Atol", Tensor::Of<double>({1}, {1}))
      .Expect("Out", {1}, {1});
}

TEST(Allclose, Constraints) {
  OpTest("allclose")
      .Input("Input", {1}, {1})
      .Input("Other", {2}, {1, 2})
      .ExpectError("allclose.C1");
  OpTest("allclose")
      .TensorInput("Input", Tensor::Of<float>({1}, {1}))
      .TensorInput("Other", Tensor::Of<double>({1}, {1}))
      .ExpectError("allclose.C2");
  Allclose({1}, {1}).TensorInput("Rtol", Tensor::Of<float>({1}, {1})).ExpectError("allclose.C3");
  Allclose({1}, {1}).Attr("atol", std::string("small")).ExpectError("allclose.C4");
}

TEST(EqualAll, Values) {
  const double inf = INFINITY;
  OpTest("equal_all")
      .Input("X", {2}, {1, inf})
      .Input("Y", {2}, {1, inf})
      .Expect("Out", {1}, {1})
      .ExpectDType("Out", DType::kBool);
  OpTest("equal_all").Input("X", {1}, {0}).Input("Y", {1}, {9e-9}).Expect("Out", {1}, {1});
  OpTest("equal_all").Input("X", {1}, {0}).Input("Y", {1}, {2e-8}).Expect("Out", {1}, {0});
  OpTest("equal_all").Input("X", {1}, {1}).Input("Y", {2}, {1, 1}).Expect("Out", {1}, {0});
  OpTest("equal_all")
      .Input("X", {1}, {std::nan("")})
      .Input("Y", {1}, {std::nan("")})
      .Expect("Out", {1}, {0});
  OpTest("equal_all")
      .IntInput("X", {2}, {1, 0}, DType::kBool)
      .IntInput("Y", {2}, {1, 0}, DType::kBool)
      .Expect("Out", {1}, {1});
  OpTest("equal_all").IntInput("X", {0}, {}).IntInput("Y", {0}, {}).Expect("Out", {1}, {1});
}

TEST(EqualAll, Constraints) {
  OpTest("equal_all").Input("X", {1}, {1}).Input("Y", {1, 1}, {1}).ExpectError("equal_all.C1");
  OpTest("equal_all").Input("X", {1}, {1}).IntInput("Y", {1}, {1}).ExpectError("equal_all.C2");
}
}  // namespace coracle::allclose_test
