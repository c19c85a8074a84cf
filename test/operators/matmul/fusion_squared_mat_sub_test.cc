#include <coracle/test/op_test.h>

namespace coracle::fusion_squared_mat_sub_test {

TEST(FusionSquaredMatSub, Values) {
  // X Y = {8, 14}; squares 64 and 196, less 1 4 + 9 4 = 40 and 4 + 144 = 148.
  OpTest("fusion_squared_mat_sub")
      .Attr("scalar", 0.5f)
      .Input("X", {1, 2}, {1, 3})
      .Input("Y", {2, 2}, {2, 2, 2, 4})
      .Expect("SquaredX", {1, 2}, {1, 9})
      .Expect("SquaredY", {2, 2}, {4, 4, 4, 16})
      .Expect("SquaredXY", {1, 2}, {64, 196})
      .Expect("Out", {1, 2}, {12, 24});
  OpTest test("fusion_squared_mat_sub");
  test.RandomInput("X", {5, 7}).RandomInput("Y", {7, 3}).CheckFast();
  OpTest("fusion_squared_mat_sub")
      .Input("X", {0, 2}, {})
      .RandomInput("Y", {2, 3})
      .Expect("Out", {0, 3}, {});
}

TEST(FusionSquaredMatSub, Gradients) {
  OpTest("fusion_squared_mat_sub")
      .Attr("scalar", 0.5f)
      .RandomInput("X", {3, 4})
      .RandomInput("Y", {4, 2})
      .CheckGradient({"X", "Y"})
      .CheckHigherGradients(2);
}

TEST(FusionSquaredMatSub, Constraints) {
  const auto op = [](const Shape& x, const Shape& y) {
    return std::move(OpTest("fusion_squared_mat_sub").RandomInput("X", x).RandomInput("Y", y));
  };
  op({2}, {2, 1}).ExpectError("fusion_squared_mat_sub.C1");
  op({2, 2}, {1, 2}).ExpectError("fusion_squared_mat_sub.C2");
  OpTest("fusion_squared_mat_sub")
      .RandomInput("X", {1, 1})
      .TensorInput("Y", Tensor::Zeros(DType::kFloat16, {1, 1}))
      .ExpectError("fusion_squared_mat_sub.C3");
}

}  // namespace coracle::fusion_squared_mat_sub_test
