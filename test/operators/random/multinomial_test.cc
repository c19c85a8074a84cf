#include <coracle/test/op_test.h>
#include <coracle/test/operators/stopped.h>

#include <cmath>

namespace coracle::multinomial_test {

OpTest Multinomial(int32_t samples, bool replacement) {
  OpTest test("multinomial");
  test.Attr("num_samples", samples).Attr("replacement", replacement);
  return test;
}

TEST(Multinomial, WeightsThatLeaveNoChoice) {
  for (uint64_t step : {0, 1, 2}) {
    Multinomial(2, true)
        .Step(step)
        .Input("X", {2, 3}, {0, 0, 7, 0, 0.5, 0})
        .Expect("Out", {2, 2}, {2, 2, 1, 1})
        .ExpectDType("Out", DType::kInt64);
    Multinomial(1, false).Step(step).Input("X", {3}, {0, 3, 0}).Expect("Out", {1}, {1});
  }
  Multinomial(2, true).Input("X", {0, 3}, {}).Expect("Out", {0, 2}, {});
}

TEST(Multinomial, FrequenciesWithReplacement) {
  constexpr int kDraws = 20000;
  const Tensor out = Multinomial(kDraws, true).Input("X", {3}, {2, 5, 3}).Output("Out");
  double counts[3] = {0, 0, 0};
  for (int64_t k : out.span<int64_t>()) ++counts[k];
  const double expected[] = {0.2, 0.5, 0.3};
  for (int k = 0; k < 3; ++k)
    EXPECT_NEAR(counts[k] / kDraws, expected[k],
                5 * std::sqrt(expected[k] * (1 - expected[k]) / kDraws));
}

// The first draw has probabilities 0.2 and 0.8; the second is the other column, never the third.
TEST(Multinomial, WithoutReplacement) {
  constexpr int kRows = 20000;
  std::vector<double> rows;
  for (int i = 0; i < kRows; ++i) rows.insert(rows.end(), {2, 8, 0});
  const Tensor out = Multinomial(2, false).Input("X", {kRows, 3}, rows).Output("Out");
  double first = 0;
  for (int i = 0; i < kRows; ++i) {
    const int64_t* row = out.data<int64_t>() + 2 * i;
    ASSERT_EQ(row[0] + row[1], 1);
    first += row[0] == 0;
  }
  EXPECT_NEAR(first / kRows, 0.2, 5 * std::sqrt(0.16 / kRows));
}

TEST(Multinomial, StopsInTime) {
  const Stopped stopped;
  OpTest("multinomial")
      .Attr("num_samples", 1000)
      .Attr("replacement", true)
      .Input("X", {2}, {1, 1})
      .ExpectError("drawing");
}

TEST(Multinomial, StopsInTimeWithoutReplacement) {
  const Stopped stopped;
  OpTest("multinomial").RandomInput("X", {1000, 1}, 1, 2).ExpectError("drawing");
}

TEST(Multinomial, Constraints) {
  Multinomial(1, true).Input("X", {1, 1, 1}, {1}).ExpectError("multinomial.C1");
  Multinomial(2, false).Input("X", {1}, {1}).ExpectError("multinomial.C2");
  Multinomial(2, false).Input("X", {3}, {1, 0, 0}).ExpectError("multinomial.C3");
  Multinomial(1, true).Input("X", {2}, {0, 0}).ExpectError("multinomial.C3");
  Multinomial(1, true).Input("X", {2}, {1, -1}).ExpectError("multinomial.C3");
  Multinomial(1, true).Input("X", {2}, {1, INFINITY}).ExpectError("multinomial.C3");
  Multinomial(1, true).Input("X", {2}, {1, std::nan("")}).ExpectError("multinomial.C3");
}

TEST(Bernoulli, Values) {
  OpTest("bernoulli").Input("X", {4}, {0, 1, 1, 0}).Expect("Out", {4}, {0, 1, 1, 0});
  constexpr int kDraws = 20000;
  const Tensor out =
      OpTest("bernoulli").Input("X", {kDraws}, std::vector<double>(kDraws, 0.3)).Output("Out");
  double sum = 0;
  for (float value : out.span<float>()) sum += static_cast<double>(value);
  EXPECT_NEAR(sum / kDraws, 0.3, 5 * std::sqrt(0.21 / kDraws));
}

TEST(Bernoulli, Constraints) {
  for (double bad : {-0.1, 1.1, std::nan("")})
    OpTest("bernoulli").Input("X", {1}, {bad}).ExpectError("bernoulli.C1");
}
}  // namespace coracle::multinomial_test
