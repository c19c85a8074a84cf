#include <coracle/test/op_test.h>

namespace coracle::shape_test {

TEST(Shape, Values) {
  OpTest("shape")
      .Input("Input", {2, 0, 3}, {})
      .Expect("Out", {3}, {2, 0, 3})
      .ExpectDType("Out", DType::kInt32);
  OpTest("shape").Input("Input", {}, {1}).Expect("Out", {0}, {});
  OpTest("shape").IntInput("Input", {2}, {1, 2}, DType::kBool).Expect("Out", {1}, {2});
}

TEST(Size, Values) {
  OpTest("size")
      .Input("Input", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Out", {1}, {6})
      .ExpectDType("Out", DType::kInt64);
  OpTest("size").IntInput("Input", {}, {3}).Expect("Out", {1}, {1});
  OpTest("size").Input("Input", {2, 0}, {}).Expect("Out", {1}, {0});
}

TEST(IsEmpty, Values) {
  OpTest("is_empty")
      .Input("X", {0, 2}, {})
      .Expect("Out", {1}, {1})
      .ExpectDType("Out", DType::kBool);
  OpTest("is_empty").Input("X", {}, {0}).Expect("Out", {1}, {0});
}

}  // namespace coracle::shape_test
