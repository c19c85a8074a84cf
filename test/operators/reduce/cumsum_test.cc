#include "../../op_test.h"

namespace coracle {

TEST(Cumsum, Values) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};
  OpTest("cumsum")
      .Input("X", {2, 3}, x)
      .Expect("Out", {2, 3}, {1, 3, 6, 4, 9, 15})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("cumsum")
      .Attr("axis", 0)
      .Attr("reverse", true)
      .Input("X", {2, 3}, x)
      .Expect("Out", {2, 3}, {5, 7, 9, 4, 5, 6})
      .CheckGradient({"X"});
  OpTest("cumsum")
      .Attr("exclusive", true)
      .InPlace("X", "Out")
      .Input("X", {2, 3}, x)
      .Expect("Out", {2, 3}, {0, 1, 3, 0, 4, 9});
  OpTest("cumsum")
      .Attr("exclusive", true)
      .Attr("reverse", true)
      .Input("X", {3}, {1, 2, 3})
      .Expect("Out", {3}, {5, 3, 0})
      .CheckGradient({"X"});
  OpTest("cumsum")
      .Attr("flatten", true)
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {4}, {1, 3, 6, 10})
      .CheckGradient({"X"});
  OpTest("cumsum").IntInput("X", {3}, {1, 2, 3}).Expect("Out", {3}, {1, 3, 6});
  OpTest("cumsum").Input("X", {}, {4}).Expect("Out", {}, {4});
  OpTest("cumsum").Input("X", {2, 0}, {}).Expect("Out", {2, 0}, {});
}

TEST(Cumsum, C1_Axis) {
  OpTest("cumsum").Attr("axis", 1).Input("X", {1}, {1}).ExpectError("cumsum.C1");
}

}  // namespace coracle
