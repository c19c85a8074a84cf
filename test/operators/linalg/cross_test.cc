#include <coracle/test/op_test.h>
#include <coracle/test/operators/inferred_shape.h>

namespace coracle::cross_test {

TEST(Cross, Values) {
  OpTest("cross")
      .Input("X", {2, 3}, {1, 0, 0, 1, 2, 3})
      .Input("Y", {2, 3}, {0, 1, 0, 4, 5, 6})
      .Expect("Out", {2, 3}, {0, 0, 1, -3, 6, -3});
  // The first dim of size 3.
  OpTest("cross")
      .Input("X", {3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1})
      .Input("Y", {3, 3}, {0, 0, 1, 1, 0, 0, 0, 1, 0})
      .Expect("Out", {3, 3}, {0, 1, 0, 0, 0, 1, 1, 0, 0});
  for (int32_t dim : {0, -2}) {
    OpTest("cross")
        .Attr("dim", dim)
        .IntInput("X", {3, 1}, {1, 2, 3}, DType::kInt32)
        .IntInput("Y", {3, 1}, {4, 5, 6}, DType::kInt32)
        .Expect("Out", {3, 1}, {-3, 6, -3})
        .ExpectDType("Out", DType::kInt32);
  }
  OpTest("cross").Input("X", {0, 3}, {}).Input("Y", {0, 3}, {}).Expect("Out", {0, 3}, {});
  EXPECT_EQ(InferredShape("cross", {{"X", {-1, -1}}, {"Y", {-1, 3}}}, "Out", {}), "[-1, -1]");
}

TEST(Cross, Gradients) {
  OpTest test("cross");
  test.Attr("dim", 1).RandomInput("X", {2, 3, 2}).RandomInput("Y", {2, 3, 2});
  test.CheckGradient({"X", "Y"}).CheckHigherGradients();
}

TEST(Cross, Constraints) {
  OpTest("cross").RandomInput("X", {2, 2}).RandomInput("Y", {2, 2}).ExpectError("cross.C1");
  OpTest("cross")
      .Attr("dim", 0)
      .RandomInput("X", {2, 3})
      .RandomInput("Y", {2, 3})
      .ExpectError("cross.C1");
  OpTest("cross").RandomInput("X", {3}).RandomInput("Y", {1, 3}).ExpectError("cross.C2");
}

}  // namespace coracle::cross_test
