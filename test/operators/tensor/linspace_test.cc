#include <coracle/test/op_test.h>

namespace coracle::linspace_test {

OpTest Linspace(double start, double stop, int64_t num) {
  OpTest test("linspace");
  test.Input("Start", {1}, {start}).Input("Stop", {1}, {stop});
  test.IntInput("Num", {1}, {num}, DType::kInt32);
  return test;
}

TEST(Linspace, Values) {
  Linspace(0, 10, 5).Expect("Out", {5}, {0, 2.5, 5, 7.5, 10}).ExpectDType("Out", DType::kFloat32);
  Linspace(1, -1, 3).Expect("Out", {3}, {1, 0, -1});
  Linspace(3, 8, 1).Expect("Out", {1}, {3});
  Linspace(3, 8, 2).Expect("Out", {2}, {3, 8});
  Linspace(0, 3, 4)
      .Attr("dtype", static_cast<int32_t>(DType::kFloat64))
      .Expect("Out", {4}, {0, 1, 2, 3})
      .ExpectDType("Out", DType::kFloat64);
}

// Integers are truncated towards 0, counted from both ends.
TEST(Linspace, Integers) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("linspace")
        .Attr("dtype", static_cast<int32_t>(dtype))
        .IntInput("Start", {1}, {0}, dtype)
        .IntInput("Stop", {1}, {10}, dtype)
        .IntInput("Num", {1}, {4}, DType::kInt32)
        .Expect("Out", {4}, {0, 3, 6, 10})
        .ExpectDType("Out", dtype);
  }
}

// Neighbours that are equal as doubles.
TEST(Linspace, LargeIntegers) {
  const int64_t first = (int64_t{1} << 53) + 1;
  const auto test = [](int64_t start, int64_t stop, int64_t num) {
    const Tensor out = OpTest("linspace")
                           .Attr("dtype", static_cast<int32_t>(DType::kInt64))
                           .IntInput("Start", {1}, {start})
                           .IntInput("Stop", {1}, {stop})
                           .IntInput("Num", {1}, {num}, DType::kInt32)
                           .Output("Out");
    return std::vector<int64_t>(out.data<int64_t>(), out.data<int64_t>() + out.numel());
  };
  using Longs = std::vector<int64_t>;
  EXPECT_EQ(test(first, first + 2, 3), (Longs{first, first + 1, first + 2}));
  EXPECT_EQ(test(-first - 2, -first, 3), (Longs{-first - 2, -first - 1, -first}));
  EXPECT_EQ(test(INT64_MIN, INT64_MAX, 2), (Longs{INT64_MIN, INT64_MAX}));
  EXPECT_EQ(test(INT64_MAX, 0, 1), Longs{INT64_MAX});
}

TEST(Linspace, Constraints) {
  OpTest("linspace")
      .Input("Start", {2}, {0, 1})
      .Input("Stop", {1}, {1})
      .IntInput("Num", {1}, {2})
      .ExpectError("linspace.C1");
  OpTest("linspace")
      .Input("Start", {1}, {0})
      .Input("Stop", {1}, {1})
      .Input("Num", {1}, {2})
      .ExpectError("linspace.C2");
  Linspace(0, 1, 2).Attr("dtype", 7).ExpectError("linspace.C3");
  Linspace(0, 1, 0).ExpectError("linspace.C4");
}
}  // namespace coracle::linspace_test
