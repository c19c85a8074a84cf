#include "../op_test.h"

namespace coracle {

TEST(FillZerosLike, Values) {
  OpTest("fill_zeros_like").Input("X", {2, 2}, {1, 2, 3, 4}).Expect("Out", {2, 2}, {0, 0, 0, 0});
  OpTest("fill_zeros_like").Input("X", {}, {1}).Expect("Out", {}, {0});
  OpTest("fill_zeros_like").Input("X", {0}, {}).Expect("Out", {0}, {});
  OpTest("fill_zeros_like")
      .IntInput("X", {2}, {1, 2})
      .Expect("Out", {2}, {0, 0})
      .ExpectDType("Out", DType::kInt64);
}

}  // namespace coracle
