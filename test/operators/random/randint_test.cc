#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::randint_test {

using Longs = std::vector<int64_t>;

OpTest Randint(int32_t low, int32_t high) {
  OpTest test("randint");
  test.Attr("low", low).Attr("high", high);
  return test;
}

TEST(Randint, RangeAndFrequencies) {
  constexpr int kDraws = 30000;
  const Tensor out = Randint(-1, 2).Attr("shape", Longs{kDraws}).Output("Out");
  ASSERT_EQ(out.dtype(), DType::kInt64);
  double counts[3] = {0, 0, 0};
  for (int64_t value : out.span<int64_t>()) {
    ASSERT_TRUE(value >= -1 && value < 2) << value;
    ++counts[value + 1];
  }
  // Five standard deviations of a count.
  for (double count : counts) EXPECT_NEAR(count / kDraws, 1.0 / 3, 5 * std::sqrt(2.0 / 9 / kDraws));
}

TEST(Randint, ShapesAndTypes) {
  Randint(5, 6).Attr("shape", Longs{2, 1}).Expect("Out", {2, 1}, {5, 5});
  Randint(5, 6)
      .Attr("dtype", static_cast<int32_t>(DType::kInt32))
      .IntInput("ShapeTensor", {2}, {1, 2})
      .IntInput("ShapeTensorList", {1}, {7})
      .Expect("Out", {1, 2}, {5, 5})
      .ExpectDType("Out", DType::kInt32);
  Randint(5, 6).IntInput("ShapeTensorList", {1}, {3}).Expect("Out", {3}, {5, 5, 5});
  Randint(5, 6).Attr("shape", Longs{0}).Expect("Out", {0}, {});
  const Tensor wide = Randint(INT32_MIN, INT32_MAX).Attr("shape", Longs{100}).Output("Out");
  for (int64_t value : wide.span<int64_t>()) EXPECT_TRUE(value >= INT32_MIN && value < INT32_MAX);
}

TEST(Randint, SeedsAndSteps) {
  const auto draw = [](int32_t seed, uint64_t program, uint64_t step) {
    return Randint(0, 1000000)
        .Attr("shape", Longs{8})
        .Attr("seed", seed)
        .Seed(program)
        .Step(step)
        .Output("Out");
  };
  EXPECT_TRUE(BitEqual(draw(0, 1, 1), draw(0, 1, 1)));
  EXPECT_FALSE(BitEqual(draw(0, 1, 1), draw(0, 2, 1)));
  EXPECT_FALSE(BitEqual(draw(0, 1, 1), draw(0, 1, 2)));
  EXPECT_TRUE(BitEqual(draw(3, 1, 1), draw(3, 2, 1)));
}

TEST(Randint, Constraints) {
  Randint(0, 1).Attr("shape", Longs{-1}).ExpectError("randint.C1");
  Randint(0, 1).Attr("shape", Longs(10, 1)).ExpectError("randint.C2");
  Randint(0, 1).Attr("dtype", 5).ExpectError("randint.C3");
  Randint(1, 1).ExpectError("randint.C4");
}

TEST(Seed, Values) {
  OpTest("seed").Attr("seed", 17).Expect("Out", {1}, {17}).ExpectDType("Out", DType::kInt32);
  const auto draw = [](uint64_t step) { return OpTest("seed").Step(step).Output("Out"); };
  EXPECT_GE(draw(1).Item<int32_t>(), 0);
  EXPECT_NE(draw(1).Item<int32_t>(), draw(2).Item<int32_t>());
}
}  // namespace coracle::randint_test
