#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::histogram_test {

OpTest Histogram(int64_t bins, int32_t min, int32_t max) {
  OpTest test("histogram");
  test.Attr("bins", bins).Attr("min", min).Attr("max", max);
  return test;
}

TEST(Histogram, Values) {
  Histogram(4, 0, 4)
      .Input("X", {2, 4}, {0, 0.5, 1, 3.5, 4, -0.5, 4.5, std::nan("")})
      .Expect("Out", {4}, {2, 1, 0, 2})
      .ExpectDType("Out", DType::kInt64);
  // The range of the data.
  Histogram(4, 0, 0).Input("X", {3}, {1, 2, 1}).Expect("Out", {4}, {2, 0, 0, 1});
  // All elements equal: one more on both sides.
  Histogram(3, 0, 0).Input("X", {2}, {5, 5}).Expect("Out", {3}, {0, 2, 0});
  Histogram(3, 0, 0).Input("X", {0}, {}).Expect("Out", {3}, {0, 0, 0});
  for (DType dtype : {DType::kInt32, DType::kInt64})
    Histogram(3, 0, 6).IntInput("X", {5}, {0, 1, 2, 6, 7}, dtype).Expect("Out", {3}, {2, 1, 1});
  Histogram(2, 0, 0).IntInput("X", {2}, {INT64_MIN, INT64_MAX}).Expect("Out", {2}, {1, 1});
  EXPECT_EQ(OpTest("histogram").Input("X", {1}, {1}).Output("Out").numel(), 100);
}

// Ranges whose width, or its product with the bins, overflows float32.
TEST(Histogram, WideRanges) {
  Histogram(2, 0, 0).Input("X", {3}, {-3e38, 1e38, 3e38}).Expect("Out", {2}, {1, 2});
  Histogram(4, 0, 0).Input("X", {3}, {0, 1e38, 3e38}).Expect("Out", {4}, {1, 1, 0, 1});
  OpTest doubles("histogram");
  doubles.Attr("bins", int64_t{3});
  doubles.TensorInput("X", Tensor::Of<double>({3}, {-1.7e308, 0, 1.7e308}));
  doubles.Expect("Out", {3}, {1, 1, 1});
  Histogram(2, -1, 1).Input("X", {3}, {INFINITY, -INFINITY, 0}).Expect("Out", {2}, {0, 1});
}

TEST(Histogram, Constraints) {
  Histogram(3, 1, 0).Input("X", {1}, {1}).ExpectError("histogram.C1");
  Histogram(3, 0, 0).Input("X", {2}, {1, INFINITY}).ExpectError("histogram.C2");
}
}  // namespace coracle::histogram_test
