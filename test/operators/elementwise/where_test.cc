#include <coracle/test/op_test.h>

namespace coracle::where_test {

TEST(Where, Values) {
  OpTest("where")
      .IntInput("Condition", {3}, {1, 0, 1}, DType::kBool)
      .Input("X", {3}, {1, 2, 3})
      .Input("Y", {3}, {4, 5, 6})
      .Expect("Out", {3}, {1, 5, 3})
      .CheckGradient({"X", "Y"});
  for (DType dtype : {DType::kBool, DType::kInt16, DType::kInt32, DType::kInt64}) {
    OpTest("where")
        .IntInput("Condition", {2}, {1, 0}, DType::kBool)
        .IntInput("X", {2}, {1, 1}, dtype)
        .IntInput("Y", {2}, {0, 0}, dtype)
        .Expect("Out", {2}, {1, 0})
        .ExpectDType("Out", dtype);
  }
}

TEST(Where, Constraints) {
  OpTest("where")
      .IntInput("Condition", {1}, {1})
      .Input("X", {1}, {1})
      .Input("Y", {1}, {1})
      .ExpectError("where.C1");
  OpTest("where")
      .IntInput("Condition", {1}, {1}, DType::kBool)
      .Input("X", {1}, {1})
      .IntInput("Y", {1}, {1})
      .ExpectError("where.C2");
  OpTest("where")
      .IntInput("Condition", {2}, {1, 1}, DType::kBool)
      .Input("X", {1}, {1})
      .Input("Y", {1}, {1})
      .ExpectError("where.C3");
}

}  // namespace coracle::where_test
