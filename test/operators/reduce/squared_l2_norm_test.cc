#include "../../op_test.h"

namespace coracle::squared_l2_norm_test {

TEST(SquaredL2Norm, Values) {
  OpTest("squared_l2_norm")
      .Input("X", {2, 2}, {1, -2, 3, 0.5})
      .Expect("Out", {1}, {14.25})
      .CheckGradient({"X"});
  OpTest("squared_l2_norm").Input("X", {}, {-3}).Expect("Out", {1}, {9}).CheckGradient({"X"});
  OpTest("squared_l2_norm").Input("X", {0}, {}).Expect("Out", {1}, {0});
}

TEST(SquaredL2Norm, FastAgainstReference) {
  for (int64_t n : {1, 17, 2049, 16385, 200003})
    OpTest("squared_l2_norm").RandomInput("X", {n}).CheckFast(1e-6);
}

}  // namespace coracle::squared_l2_norm_test
