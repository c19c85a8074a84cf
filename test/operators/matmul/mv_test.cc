#include <coracle/test/op_test.h>

namespace coracle::mv_test {

TEST(Mv, Values) {
  OpTest("mv")
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Input("Vec", {3}, {1, 0, -1})
      .Expect("Out", {2}, {-2, -2});
  OpTest("mv").Input("X", {2, 0}, {}).Input("Vec", {0}, {}).Expect("Out", {2}, {0, 0});
  OpTest("mv").Input("X", {0, 1}, {}).Input("Vec", {1}, {1}).Expect("Out", {0}, {});
}

TEST(Mv, Gradients) {
  OpTest test("mv");
  test.RandomInput("X", {3, 4}).RandomInput("Vec", {4});
  test.CheckGradient({"X", "Vec"}).CheckFast().CheckHigherGradients();
}

TEST(Mv, Constraints) {
  OpTest("mv").RandomInput("X", {3}).RandomInput("Vec", {3}).ExpectError("mv.C1");
  OpTest("mv").RandomInput("X", {2, 3}).RandomInput("Vec", {2}).ExpectError("mv.C2");
  OpTest("mv")
      .RandomInput("X", {1, 1})
      .TensorInput("Vec", Tensor::Zeros(DType::kFloat16, {1}))
      .ExpectError("mv.C3");
}

}  // namespace coracle::mv_test
