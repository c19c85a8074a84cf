#include <coracle/test/op_test.h>

namespace coracle::bilinear_tensor_product_test {

OpTest Of(const Shape& x, const Shape& y, const Shape& weight) {
  OpTest test("bilinear_tensor_product");
  test.RandomInput("X", x).RandomInput("Y", y).RandomInput("Weight", weight);
  return test;
}

TEST(BilinearTensorProduct, Values) {
  OpTest test("bilinear_tensor_product");
  test.Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("Y", {2, 1}, {5, 6})
      .Input("Weight", {2, 2, 1}, {1, 0, 1, 1});
  test.Expect("Out", {2, 2}, {5, 15, 18, 42});
  test.Input("Bias", {1, 2}, {100, 200}).Expect("Out", {2, 2}, {105, 215, 118, 242});
}

TEST(BilinearTensorProduct, EmptySizes) {
  Of({0, 2}, {0, 3}, {4, 2, 3}).Expect("Out", {0, 4}, {});
  Of({1, 0}, {1, 2}, {1, 0, 2}).Expect("Out", {1, 1}, {0});
}

// No loop over Weight's first dim, which may be large.
TEST(BilinearTensorProduct, NoElements) {
  const int64_t many = int64_t{1} << 20;
  Of({0, 1}, {0, 0}, {many, 1, 0}).Expect("Out", {0, many}, {});
}

TEST(BilinearTensorProduct, FloatsAddUpInDouble) {
  OpTest("bilinear_tensor_product")
      .Input("X", {1, 1}, {1})
      .Input("Y", {1, 3}, {1e8, 1, -1e8})
      .Input("Weight", {1, 1, 3}, {1, 1, 1})
      .Expect("Out", {1, 1}, {1});
}

TEST(BilinearTensorProduct, Gradients) {
  OpTest test = Of({2, 3}, {2, 4}, {3, 3, 4});
  test.CheckGradient({"X", "Y", "Weight"});
  test.RandomInput("Bias", {1, 3}).CheckGradient({"X", "Y", "Weight", "Bias"});
  test.CheckFast().CheckHigherGradients();
}

TEST(BilinearTensorProduct, Constraints) {
  const std::string type = "bilinear_tensor_product";
  Of({2}, {2, 3}, {1, 2, 3}).ExpectError(type + ".C1");
  Of({2, 2}, {1, 3}, {1, 2, 3}).ExpectError(type + ".C2");
  Of({2, 2}, {2, 3}, {1, 2, 2}).ExpectError(type + ".C3");
  Of({2, 2}, {2, 3}, {1, 2, 3}).IntInput("Bias", {1, 1}, {1}).ExpectError(type + ".C4");
  Of({2, 2}, {2, 3}, {1, 2, 3}).RandomInput("Bias", {1}).ExpectError(type + ".C5");
}

}  // namespace coracle::bilinear_tensor_product_test
