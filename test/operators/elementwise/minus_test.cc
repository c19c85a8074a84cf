#include <coracle/test/op_test.h>

namespace coracle::minus_test {

TEST(Minus, Values) {
  OpTest("minus")
      .Input("X", {3}, {1, 2, 3})
      .Input("Y", {3}, {5, 0.5, -1})
      .Expect("Out", {3}, {-4, 1.5, 4})
      .CheckGradient({"X", "Y"})
      .CheckGradient({"Y"})
      .CheckSecondGradient({"X", "Y"});
  OpTest("minus").Input("X", {}, {1}).Input("Y", {}, {4}).Expect("Out", {}, {-3});
  OpTest("minus").Input("X", {0}, {}).Input("Y", {0}, {}).Expect("Out", {0}, {});
  OpTest("minus").IntInput("X", {1}, {1}).IntInput("Y", {1}, {4}).Expect("Out", {1}, {-3});
}

TEST(Minus, C1_Shapes) {
  OpTest("minus").RandomInput("X", {2}).RandomInput("Y", {1}).ExpectError("minus.C1");
}
TEST(Minus, C2_DTypes) {
  OpTest("minus").RandomInput("X", {1}).IntInput("Y", {1}, {1}).ExpectError("minus.C2");
}

}  // namespace coracle::minus_test
