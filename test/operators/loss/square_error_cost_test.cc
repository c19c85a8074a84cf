#include <coracle/test/op_test.h>

namespace coracle::square_error_cost_test {

TEST(SquareErrorCost, Values) {
  OpTest("square_error_cost")
      .Input("X", {2, 2}, {1, 2, -3, 0.5})
      .Input("Y", {2, 2}, {0, 4, 1, 0.5})
      .Expect("Out", {2, 2}, {1, 4, 16, 0})
      .CheckGradient({"X", "Y"})
      .CheckSecondGradient({"X", "Y"});
}

TEST(SquareErrorCost, OneSide) {
  OpTest("square_error_cost")
      .RandomInput("X", {5})
      .RandomInput("Y", {5})
      .CheckGradient({"X"})
      .CheckGradient({"Y"})
      .CheckSecondGradient({"X"});
}

TEST(SquareErrorCost, SmallShapes) {
  OpTest("square_error_cost").Input("X", {}, {3}).Input("Y", {}, {1}).Expect("Out", {}, {4});
  OpTest("square_error_cost")
      .Input("X", {0, 2}, {})
      .Input("Y", {0, 2}, {})
      .Expect("Out", {0, 2}, {});
  OpTest("square_error_cost")
      .InPlace("X", "Out")
      .Input("X", {1}, {3})
      .Input("Y", {1}, {1})
      .Expect("Out", {1}, {4});
}

TEST(SquareErrorCost, C1_Shapes) {
  OpTest("square_error_cost")
      .RandomInput("X", {2, 1})
      .RandomInput("Y", {2})
      .ExpectError("square_error_cost.C1");
}

TEST(SquareErrorCostGrad, Constraints) {
  OpTest("square_error_cost_grad")
      .RandomInput("X", {2})
      .RandomInput("Y", {3})
      .RandomInput("Out@GRAD", {2})
      .ExpectError("square_error_cost_grad.C1");
  OpTest("square_error_cost_grad")
      .RandomInput("X", {2})
      .RandomInput("Y", {2})
      .RandomInput("Out@GRAD", {3})
      .ExpectError("square_error_cost_grad.C2");
}
}  // namespace coracle::square_error_cost_test
