#include <coracle/test/op_test.h>

#include <limits>

namespace coracle::sampling_id_test {

TEST(SamplingId, RowsThatLeaveNoChoice) {
  for (uint64_t step : {0, 1, 2}) {
    OpTest("sampling_id")
        .Step(step)
        .Input("X", {3, 3}, {1, 0, 0, 0, 0, 1, 0, 1, 0})
        .Expect("Out", {3}, {0, 2, 1});
  }
}

// Rows that do not sum to 1: the last column takes the rest. min and max bound the draw.
TEST(SamplingId, EdgesOfTheDraw) {
  OpTest("sampling_id").Input("X", {2, 2}, {0, 0, -1, -2}).Expect("Out", {2}, {1, 1});
  OpTest("sampling_id")
      .Attr("min", 0.5f)
      .Attr("max", 0.5f)
      .Input("X", {1, 3}, {0.4, 0.2, 0.4})
      .Expect("Out", {1}, {1});
  OpTest("sampling_id").Input("X", {0, 3}, {}).Expect("Out", {0}, {});
}

// No draw: the last column would look like one.
TEST(SamplingId, ANanIsAnError) {
  OpTest("sampling_id")
      .Input("X", {2, 3}, {0, 1, 0, 0, std::nan(""), 1})
      .ExpectError("sampling_id: row 1 of X holds a nan");
  const double inf = std::numeric_limits<double>::infinity();
  OpTest("sampling_id")
      .Input("X", {2, 3}, {0, 1, 0, -inf, inf, 1})
      .ExpectError("sampling_id: row 1 of X holds inf and -inf");
}

TEST(SamplingId, FrequenciesAreTheProbabilities) {
  constexpr int kRows = 20000;
  std::vector<double> rows;
  for (int i = 0; i < kRows; ++i) rows.insert(rows.end(), {0.2, 0.5, 0.3});
  const Tensor out = OpTest("sampling_id").Input("X", {kRows, 3}, rows).Output("Out");
  double counts[3] = {0, 0, 0};
  for (int64_t k : out.span<int64_t>()) ++counts[k];
  // Four standard deviations of a count.
  EXPECT_NEAR(counts[0] / kRows, 0.2, 4 * std::sqrt(0.16 / kRows));
  EXPECT_NEAR(counts[1] / kRows, 0.5, 4 * std::sqrt(0.25 / kRows));
  EXPECT_NEAR(counts[2] / kRows, 0.3, 4 * std::sqrt(0.21 / kRows));
}

TEST(SamplingId, DrawsChangeWithTheStepAndNotWithTheRun) {
  auto draw = [](uint64_t step) {
    return OpTest("sampling_id")
        .Step(step)
        .Input("X", {64, 4}, std::vector<double>(256, 0.25))
        .Output("Out");
  };
  EXPECT_TRUE(BitEqual(draw(1), draw(1)));
  EXPECT_FALSE(BitEqual(draw(1), draw(2)));
}

TEST(SamplingId, Constraints) {
  OpTest("sampling_id").Input("X", {3}, {1, 0, 0}).ExpectError("sampling_id.C1");
  OpTest("sampling_id").Input("X", {3, 0}, {}).ExpectError("sampling_id.C2");
  OpTest("sampling_id")
      .Attr("min", 1.f)
      .Attr("max", 0.f)
      .Input("X", {1, 1}, {1})
      .ExpectError("sampling_id.C3");
}
}  // namespace coracle::sampling_id_test
