#include <coracle/test/op_test.h>

namespace coracle::mean_iou_test {

OpTest Iou(const std::vector<int64_t>& predictions, const std::vector<int64_t>& labels,
           DType dtype = DType::kInt32) {
  const auto n = static_cast<int64_t>(predictions.size());
  const auto m = static_cast<int64_t>(labels.size());
  return std::move(OpTest("mean_iou")
                       .Attr("num_classes", 4)
                       .IntInput("Predictions", {n}, predictions, dtype)
                       .IntInput("Labels", {m}, labels, dtype));
}

TEST(MeanIou, Values) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    // Class 0: 2 of 3, class 1: 0 of 2, class 2: 1 of 2; class 3 does not occur.
    Iou({0, 0, 1, 2, 0}, {0, 0, 2, 2, 1}, dtype)
        .Expect("OutCorrect", {4}, {2, 0, 1, 0})
        .Expect("OutWrong", {4}, {1, 2, 1, 0})
        .Expect("OutMeanIou", {1}, {(2.0 / 3 + 0 + 0.5) / 3});
  }
  Iou({0}, {0})
      .IntInput("InWrongs", {4}, {1, 0, 0, 0}, DType::kInt32)
      .IntInput("InWrongs", {4}, {0, 0, 0, 1}, DType::kInt32)
      .IntInput("InCorrects", {4}, {0, 0, 0, 3}, DType::kInt32)
      .TensorInput("InMeanIou", Tensor::Of<float>({1}, {0.25f}))
      .Expect("OutCorrect", {4}, {1, 0, 0, 3})
      .Expect("OutWrong", {4}, {1, 0, 0, 1})
      .Expect("OutMeanIou", {1}, {0.25 + (0.5 + 0.75) / 2});
  Iou({}, {}).Expect("OutMeanIou", {1}, {0});
}

TEST(MeanIou, Constraints) {
  Iou({0, 1}, {0}).ExpectError("mean_iou.C1");
  Iou({0}, {0}).IntInput("InWrongs", {3}, {0, 0, 0}, DType::kInt32).ExpectError("mean_iou.C2");
  Iou({0}, {0}).IntInput("InMeanIou", {1}, {0}).ExpectError("mean_iou.C3");
  Iou({4}, {0}).ExpectError("mean_iou.C4");
  Iou({0}, {-1}).ExpectError("mean_iou.C4");
}
}  // namespace coracle::mean_iou_test
