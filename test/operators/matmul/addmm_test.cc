#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::addmm_test {

OpTest Factors(float alpha, float beta) {
  OpTest test("addmm");
  test.Attr("Alpha", alpha).Attr("Beta", beta);
  return test;
}

TEST(Addmm, Values) {
  const auto test = [](float alpha, float beta, const Shape& shape,
                       const std::vector<double>& input) {
    OpTest t = Factors(alpha, beta);
    t.Input("Input", shape, input).Input("X", {2, 1}, {1, 2}).Input("Y", {1, 2}, {3, 4});
    return t;
  };
  test(1, 1, {2, 2}, {1, 2, 3, 4}).Expect("Out", {2, 2}, {4, 6, 9, 12});
  test(2, -1, {1, 2}, {1, 2}).Expect("Out", {2, 2}, {5, 6, 11, 14});
  test(1, 1, {2, 1}, {1, 2}).Expect("Out", {2, 2}, {4, 5, 8, 10});
  test(1, 0, {1, 1}, {std::nan("")}).Expect("Out", {2, 2}, {3, 4, 6, 8});
}

TEST(Addmm, EmptySizes) {
  Factors(1, 2)
      .Input("Input", {1, 2}, {1, 2})
      .Input("X", {1, 0}, {})
      .Input("Y", {0, 2}, {})
      .Expect("Out", {1, 2}, {2, 4});
  Factors(1, 2)
      .Input("Input", {1, 1}, {1})
      .Input("X", {0, 1}, {})
      .Input("Y", {1, 2}, {1, 2})
      .Expect("Out", {0, 2}, {});
}

TEST(Addmm, Gradients) {
  for (const Shape& shape : {Shape{2, 4}, Shape{1, 4}, Shape{2, 1}, Shape{1, 1}}) {
    OpTest test = Factors(0.5, -2);
    test.RandomInput("Input", shape).RandomInput("X", {2, 3}).RandomInput("Y", {3, 4});
    test.CheckGradient({"Input", "X", "Y"}).CheckFast().CheckHigherGradients();
  }
}

TEST(Addmm, Constraints) {
  const auto test = [](const Shape& input, const Shape& x, const Shape& y) {
    OpTest t("addmm");
    t.RandomInput("Input", input).RandomInput("X", x).RandomInput("Y", y);
    return t;
  };
  test({2}, {1, 2}, {2, 2}).ExpectError("addmm.C1");
  test({1, 2}, {1, 2}, {3, 2}).ExpectError("addmm.C2");
  test({1, 3}, {1, 2}, {2, 2}).ExpectError("addmm.C3");
  OpTest("addmm")
      .RandomInput("Input", {1, 1})
      .RandomInput("X", {1, 1})
      .TensorInput("Y", Tensor::Zeros(DType::kFloat16, {1, 1}))
      .ExpectError("addmm.C4");
}

}  // namespace coracle::addmm_test
