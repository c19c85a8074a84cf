#include <coracle/test/op_test.h>

namespace coracle::dot_test {

TEST(Dot, Values) {
  OpTest("dot").Input("X", {3}, {1, 2, 3}).Input("Y", {3}, {4, 5, -6}).Expect("Out", {1}, {-4});
  OpTest("dot")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("Y", {2, 2}, {5, 6, 7, 8})
      .Expect("Out", {2, 1}, {17, 53});
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("dot")
        .IntInput("X", {2}, {2, 3}, dtype)
        .IntInput("Y", {2}, {4, -5}, dtype)
        .Expect("Out", {1}, {-7})
        .ExpectDType("Out", dtype);
  }
  OpTest("dot").Input("X", {2, 0}, {}).Input("Y", {2, 0}, {}).Expect("Out", {2, 1}, {0, 0});
}

TEST(Dot, Gradients) {
  for (const Shape& shape : {Shape{5}, Shape{3, 4}}) {
    OpTest test("dot");
    test.RandomInput("X", shape).RandomInput("Y", shape);
    test.CheckGradient({"X", "Y"}).CheckHigherGradients();
  }
}

TEST(Dot, FastAgainstReference) {
  for (int64_t n : {1, 7, 16, 33, 1000})
    OpTest("dot").RandomInput("X", {3, n}).RandomInput("Y", {3, n}).CheckFast();
}

TEST(Dot, Constraints) {
  OpTest("dot").RandomInput("X", {1, 1, 2}).RandomInput("Y", {1, 1, 2}).ExpectError("dot.C1");
  OpTest("dot").RandomInput("X", {2}).RandomInput("Y", {3}).ExpectError("dot.C2");
  OpTest("dot").RandomInput("X", {1}).IntInput("Y", {1}, {1}).ExpectError("dot.C3");
}

}  // namespace coracle::dot_test
