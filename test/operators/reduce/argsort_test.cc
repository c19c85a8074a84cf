#include <cmath>

#include "../../op_test.h"

namespace coracle {
namespace {

TEST(Argsort, Values) {
  OpTest("argsort")
      .Input("X", {2, 3}, {3, 1, 2, 5, 6, 4})
      .Expect("Out", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Indices", {2, 3}, {1, 2, 0, 2, 0, 1})
      .ExpectDType("Indices", DType::kInt64)
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("argsort")
      .Attr("axis", 0)
      .Attr("descending", true)
      .Input("X", {3, 2}, {3, 1, 2, 5, 6, 4})
      .Expect("Out", {3, 2}, {6, 5, 3, 4, 2, 1})
      .Expect("Indices", {3, 2}, {2, 1, 0, 2, 1, 0})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  for (DType dtype : {DType::kInt32, DType::kInt64})
    OpTest("argsort").IntInput("X", {3}, {2, -7, 5}, dtype).Expect("Out", {3}, {-7, 2, 5});
  OpTest("argsort").Input("X", {2, 0}, {}).Expect("Out", {2, 0}, {});
  OpTest("argsort").Input("X", {1}, {4}).Expect("Indices", {1}, {0});
}

// Equal elements keep their order, whichever way the sort goes; nans are the largest.
TEST(Argsort, EqualsAndNans) {
  const double nan = std::nan("");
  OpTest("argsort").Input("X", {4}, {2, 1, 2, 1}).Expect("Indices", {4}, {1, 3, 0, 2});
  OpTest("argsort")
      .Attr("descending", true)
      .Input("X", {4}, {2, 1, 2, 1})
      .Expect("Indices", {4}, {0, 2, 1, 3});
  OpTest("argsort").Input("X", {4}, {nan, 1, nan, -INFINITY}).Expect("Indices", {4}, {3, 1, 0, 2});
}

TEST(Argsort, Constraints) {
  OpTest("argsort").Attr("axis", 1).Input("X", {1}, {1}).ExpectError("argsort.C1");
  OpTest("argsort_grad")
      .IntInput("Indices", {1}, {0})
      .Input("Out@GRAD", {2}, {1, 1})
      .ExpectError("argsort_grad.C2");
  OpTest("argsort_grad")
      .IntInput("Indices", {1}, {1})
      .Input("Out@GRAD", {1}, {1})
      .ExpectError("outside [0, 1)");
}

}  // namespace
}  // namespace coracle
