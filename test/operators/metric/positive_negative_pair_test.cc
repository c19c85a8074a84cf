#include <coracle/test/op_test.h>

namespace coracle::positive_negative_pair_test {

// Query 7: the rows 0, 2, 3, 5; query 1: the rows 1 and 4.
OpTest Rows(int32_t column) {
  OpTest test("positive_negative_pair");
  test.Attr("column", column);
  test.Input("Score", {6, 2}, {0.9, 1, 0.5, 1, 0.3, 1, 0.9, 2, 0.6, 0, 0.9, 1});
  test.Input("Label", {6, 1}, {1, 1, 0, 0, 0, 1});
  test.IntInput("QueryID", {6, 1}, {7, 1, 7, 7, 1, 7});
  return test;
}

// Pairs of different labels: 0-2, 5-2 (in order), 0-3, 5-3 (equal), 1-4 (in the wrong order). An
// equal pair is not negative as well.
TEST(PositiveNegativePair, Values) {
  Rows(0)
      .Expect("PositivePair", {1}, {2})
      .Expect("NegativePair", {1}, {1})
      .Expect("NeutralPair", {1}, {2});
  for (const int32_t column : {1, -1}) {
    Rows(column)
        .Expect("PositivePair", {1}, {1})
        .Expect("NegativePair", {1}, {2})
        .Expect("NeutralPair", {1}, {2});
  }
  OpTest weighted = Rows(0);
  weighted.Input("Weight", {6, 1}, {1, 2, 3, 5, 4, 0.5});
  weighted.Expect("PositivePair", {1}, {2 + 1.75})
      .Expect("NegativePair", {1}, {3})
      .Expect("NeutralPair", {1}, {3 + 2.75});
}

TEST(PositiveNegativePair, Accumulates) {
  for (const bool in_place : {false, true}) {
    OpTest test = Rows(0);
    test.Input("AccumulatePositivePair", {1}, {10}).Input("AccumulateNegativePair", {1}, {20});
    test.Input("AccumulateNeutralPair", {1}, {30});
    if (in_place) {
      test.InPlace("AccumulatePositivePair", "PositivePair");
      test.InPlace("AccumulateNegativePair", "NegativePair");
      test.InPlace("AccumulateNeutralPair", "NeutralPair");
    }
    test.Expect("PositivePair", {1}, {12}).Expect("NegativePair", {1}, {21});
    test.Expect("NeutralPair", {1}, {32});
  }
}

TEST(PositiveNegativePair, NoRows) {
  OpTest("positive_negative_pair")
      .Input("Score", {0, 1}, {})
      .Input("Label", {0, 1}, {})
      .IntInput("QueryID", {0, 1}, {})
      .Expect("PositivePair", {1}, {0});
}

TEST(PositiveNegativePair, Constraints) {
  const auto refused = [](const Shape& score, const Shape& label, const Shape& query,
                          int32_t column, const char* id) {
    OpTest test("positive_negative_pair");
    test.Attr("column", column).RandomInput("Score", score).RandomInput("Label", label);
    test.IntInput("QueryID", query, std::vector<int64_t>(static_cast<size_t>(query.numel()), 0));
    test.ExpectError(std::string("positive_negative_pair.") + id);
  };
  refused({2}, {2}, {2}, 0, "C1");
  refused({2, 1}, {3, 1}, {2, 1}, 0, "C2");
  refused({2, 1}, {2, 1}, {3, 1}, 0, "C3");
  refused({2, 1}, {2, 1}, {2, 1}, 1, "C4");
  refused({2, 1}, {2, 1}, {2, 1}, -2, "C4");
  Rows(0).RandomInput("AccumulatePositivePair", {1}).ExpectError("positive_negative_pair.C5");
  Rows(0).RandomInput("Weight", {5, 1}).ExpectError("positive_negative_pair.C2");
  OpTest test = Rows(0);
  test.RandomInput("AccumulatePositivePair", {1}).RandomInput("AccumulateNegativePair", {2});
  test.RandomInput("AccumulateNeutralPair", {1}).ExpectError("positive_negative_pair.C5");
}
}  // namespace coracle::positive_negative_pair_test
