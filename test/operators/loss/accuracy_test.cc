#include <coracle/test/op_test.h>

#include <limits>

namespace coracle::accuracy_test {

TEST(Accuracy, Values) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("accuracy")
        .Input("Out", {3, 2}, {9, 8, 9, 8, 9, 8})
        .IntInput("Indices", {3, 2}, {0, 1, 2, 3, 4, 4})
        .IntInput("Label", {3, 1}, {1, 1, 4}, dtype)
        .Expect("Accuracy", {1}, {2.0 / 3})
        .Expect("Correct", {1}, {2})
        .Expect("Total", {1}, {3})
        .ExpectDType("Accuracy", DType::kFloat32)
        .ExpectDType("Correct", DType::kInt32)
        .ExpectDType("Total", DType::kInt32);
  }
  OpTest("accuracy")
      .NoOutput("Correct")
      .NoOutput("Total")
      .Input("Out", {0, 1}, {})
      .IntInput("Indices", {0, 1}, {})
      .IntInput("Label", {0, 1}, {})
      .Expect("Accuracy", {1}, {0});
}

// top_k puts a nan first; a nan at the label's place is not a hit.
TEST(Accuracy, NansAreNotRight) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  OpTest("accuracy")
      .Input("Out", {3, 2}, {nan, nan, nan, 8, 9, 8})
      .IntInput("Indices", {3, 2}, {0, 1, 2, 3, 4, 4})
      .IntInput("Label", {3, 1}, {1, 3, 4})
      .Expect("Accuracy", {1}, {2.0 / 3})
      .Expect("Correct", {1}, {2});
}

TEST(Accuracy, Constraints) {
  auto op = [](const Shape& indices, const Shape& label) {
    OpTest test("accuracy");
    test.Input("Out", {1}, {1});
    test.IntInput("Indices", indices, std::vector<int64_t>(static_cast<size_t>(indices.numel())));
    test.IntInput("Label", label, std::vector<int64_t>(static_cast<size_t>(label.numel())));
    return test;
  };
  op({2}, {2, 1}).ExpectError("accuracy.C1");
  op({2, 1}, {3, 1}).ExpectError("accuracy.C2");
  op({2, 1}, {2, 2}).ExpectError("accuracy.C2");
  OpTest("accuracy")
      .Input("Out", {1, 1}, {1})
      .Input("Indices", {1, 1}, {1})
      .IntInput("Label", {1, 1}, {1})
      .ExpectError("accuracy.C3");
}

}  // namespace coracle::accuracy_test
