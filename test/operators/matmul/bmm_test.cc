#include <coracle/test/op_test.h>

namespace coracle::bmm_test {

TEST(Bmm, Values) {
  OpTest("bmm")
      .Input("X", {2, 1, 2}, {1, 2, 3, 4})
      .Input("Y", {2, 2, 2}, {1, 0, 0, 1, 1, 2, 3, 4})
      .Expect("Out", {2, 1, 2}, {1, 2, 15, 22});
}

TEST(Bmm, EmptySizes) {
  OpTest("bmm").Input("X", {0, 2, 3}, {}).Input("Y", {0, 3, 1}, {}).Expect("Out", {0, 2, 1}, {});
  OpTest("bmm")
      .Input("X", {1, 2, 0}, {})
      .Input("Y", {1, 0, 1}, {})
      .Expect("Out", {1, 2, 1}, {0, 0});
}

TEST(Bmm, Gradients) {
  OpTest test("bmm");
  test.RandomInput("X", {2, 3, 4}).RandomInput("Y", {2, 4, 2});
  test.CheckGradient({"X", "Y"}).CheckFast().CheckHigherGradients();
}

TEST(Bmm, FastAgainstReference) {
  for (int64_t n = 1; n < 20; n += 3)
    OpTest("bmm")
        .RandomInput("X", {n % 4 + 1, n, 17})
        .RandomInput("Y", {n % 4 + 1, 17, 2 * n})
        .CheckFast();
}

TEST(Bmm, Constraints) {
  OpTest("bmm").RandomInput("X", {2, 3}).RandomInput("Y", {2, 3, 1}).ExpectError("bmm.C1");
  OpTest("bmm").RandomInput("X", {2, 1, 3}).RandomInput("Y", {1, 3, 1}).ExpectError("bmm.C2");
  OpTest("bmm").RandomInput("X", {2, 1, 3}).RandomInput("Y", {2, 2, 1}).ExpectError("bmm.C3");
  OpTest("bmm")
      .RandomInput("X", {1, 1, 1})
      .TensorInput("Y", Tensor::Zeros(DType::kFloat16, {1, 1, 1}))
      .ExpectError("bmm.C4");
}

}  // namespace coracle::bmm_test
