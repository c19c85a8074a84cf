#include "../../op_test.h"

namespace coracle {
namespace {

TEST(IndexSample, Values) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("index_sample")
        .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
        .IntInput("Index", {2, 4}, {2, 0, 0, 1, 1, 1, 2, 0}, dtype)
        .Expect("Out", {2, 4}, {3, 1, 1, 2, 5, 5, 6, 4})
        .CheckGradient({"X"})
        .CheckHigherGradients();
  }
  OpTest("index_sample")
      .IntInput("X", {1, 2}, {7, 8})
      .IntInput("Index", {1, 1}, {1})
      .Expect("Out", {1, 1}, {8});
  OpTest("index_sample")
      .Input("X", {2, 1}, {1, 2})
      .IntInput("Index", {2, 0}, {})
      .Expect("Out", {2, 0}, {});
}

TEST(IndexSample, Constraints) {
  const auto sample = [] { return OpTest("index_sample").Input("X", {1, 2}, {1, 2}); };
  sample().Input("Index", {1, 1}, {0}).ExpectError("index_sample.C1");
  sample().IntInput("Index", {2, 1}, {0, 0}).ExpectError("index_sample.C2");
  for (int64_t bad : {-1, 2})
    sample().IntInput("Index", {1, 1}, {bad}).ExpectError("outside [0, 2)");
  OpTest("index_sample_grad")
      .Input("X", {1, 2}, {1, 2})
      .IntInput("Index", {1, 1}, {0})
      .Input("Out@GRAD", {1, 2}, {1, 1})
      .ExpectError("index_sample_grad.C3");
}

}  // namespace
}  // namespace coracle
