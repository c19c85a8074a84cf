#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::index_sample_test {

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

// Enough indices for several threads, far more than columns, so that each repeats.
struct Large {
  static constexpr int64_t kRows = 400, kColumns = 7, kCount = 150;
  std::vector<int64_t> index;
  std::vector<double> x, dout;

  Large() {
    std::mt19937 random(2);
    for (int64_t i = 0; i < kRows * kCount; ++i) {
      index.push_back(static_cast<int64_t>(random() % kColumns));
      dout.push_back(static_cast<double>(random() % 9) - 4);
    }
    for (int64_t i = 0; i < kRows * kColumns; ++i) x.push_back(static_cast<double>(i) / 4);
  }
  OpTest Forward(DType dtype) const {
    return std::move(OpTest("index_sample")
                         .Input("X", {kRows, kColumns}, x)
                         .IntInput("Index", {kRows, kCount}, index, dtype));
  }
  OpTest Backward(DType dtype) const {
    return std::move(OpTest("index_sample_grad")
                         .Input("X", {kRows, kColumns}, x)
                         .IntInput("Index", {kRows, kCount}, index, dtype)
                         .Input("Out@GRAD", {kRows, kCount}, dout));
  }
};

TEST(IndexSample, ManyIndices) {
  const Large large;
  std::vector<double> out, dx(large.x.size(), 0);
  for (size_t i = 0; i < large.index.size(); ++i) {
    const size_t row = i / Large::kCount, column = static_cast<size_t>(large.index[i]);
    out.push_back(large.x[row * Large::kColumns + column]);
    dx[row * Large::kColumns + column] += large.dout[i];
  }
  for (const int threads : {1, 3}) {
    const Threads set(threads);
    for (const DType dtype : {DType::kInt32, DType::kInt64}) {
      large.Forward(dtype).Expect("Out", {Large::kRows, Large::kCount}, out);
      large.Backward(dtype).Expect("X@GRAD", {Large::kRows, Large::kColumns}, dx);
    }
  }
}

TEST(IndexSample, AnIndexOutOfRangeInALateRow) {
  const Threads threads(3);
  for (const int64_t bad : {int64_t{-1}, Large::kColumns}) {
    Large large;
    large.index[Large::kRows * Large::kCount - 2] = bad;
    const std::string what = "Index holds " + std::to_string(bad) + " at 59998, outside [0, 7)";
    large.Forward(DType::kInt64).ExpectError("index_sample: " + what);
    large.Backward(DType::kInt64).ExpectError("index_sample_grad: " + what);
  }
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
}  // namespace coracle::index_sample_test
