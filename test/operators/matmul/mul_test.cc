#include <coracle/test/op_test.h>
#include <coracle/test/operators/inferred_shape.h>

namespace coracle::mul_test {

TEST(Mul, Values) {
  OpTest("mul")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("Y", {2, 3}, {1, 0, 2, 0, 1, 3})
      .Expect("Out", {2, 3}, {1, 2, 8, 3, 4, 18});
}

TEST(Mul, Gradients) {
  OpTest("mul")
      .Attr("x_num_col_dims", 2)
      .RandomInput("X", {2, 3, 4})
      .RandomInput("Y", {4, 5})
      .CheckGradient({"X", "Y"})
      .CheckFast();
}

TEST(Mul, CollapsesDims) {
  OpTest("mul")
      .Attr("x_num_col_dims", 1)
      .Attr("y_num_col_dims", 2)
      .Input("X", {1, 2, 2}, {1, 2, 3, 4})
      .Input("Y", {2, 2, 1}, {1, 1, 1, 1})
      .Expect("Out", {1, 1}, {10});
}

TEST(Mul, EmptySizes) {
  OpTest("mul")
      .Input("X", {0, 2}, {})
      .Input("Y", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Out", {0, 3}, {});
  OpTest("mul").Input("X", {2, 0}, {}).Input("Y", {0, 1}, {}).Expect("Out", {2, 1}, {0, 0});
}

TEST(Mul, FastAgainstReference) {
  for (int trial = 0; trial < 12; ++trial) {
    int64_t m = 1 + trial * 3, k = 1 + trial * 5 % 17, n = 1 + trial * 7 % 23;
    OpTest("mul").RandomInput("X", {m, k}).RandomInput("Y", {k, n}).CheckFast();
  }
}

TEST(Mul, C1_XColumns) {
  OpTest("mul")
      .Attr("x_num_col_dims", 2)
      .RandomInput("X", {2, 2})
      .RandomInput("Y", {2, 2})
      .ExpectError("mul.C1");
}
TEST(Mul, C2_YColumns) {
  OpTest("mul")
      .Attr("y_num_col_dims", 0)
      .RandomInput("X", {2, 2})
      .RandomInput("Y", {2, 2})
      .ExpectError("mul.C2");
}
TEST(Mul, C3_InnerDims) {
  OpTest("mul").RandomInput("X", {2, 3}).RandomInput("Y", {2, 2}).ExpectError("mul.C3");
}
TEST(Mul, HugeInnerDims) {
  // 2^61 * 8 is 0 in 64 bits, which must not pass for the 0 of Y.
  const Shape x = {1, int64_t{1} << 61, 8};
  EXPECT_THROW(InferredShape("mul", {{"X", x}, {"Y", {0, 3}}}, "Out", {}), Error);
}
TEST(Mul, C4_DTypes) {
  OpTest("mul")
      .RandomInput("X", {2, 2})
      .TensorInput("Y", Tensor::Zeros(DType::kFloat16, {2, 2}))
      .ExpectError("mul.C4");
}

}  // namespace coracle::mul_test
