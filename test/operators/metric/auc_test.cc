#include <coracle/test/op_test.h>

#include <limits>

namespace coracle::auc_test {

using Counts = std::vector<int64_t>;

// Three thresholds: the buckets of 0.1, 0.4, 0.7, 1 are 0, 1, 2, 3.
OpTest Auc(int32_t slide_steps, const Shape& stat, const Counts& pos, const Counts& neg) {
  OpTest test("auc");
  test.Attr("num_thresholds", 3).Attr("slide_steps", slide_steps);
  test.Input("Predict", {4, 2}, {0.9, 0.1, 0.6, 0.4, 0.3, 0.7, 0, 1});
  test.IntInput("Label", {4, 1}, {0, 1, 0, 1}).IntInput("StatPos", stat, pos);
  test.IntInput("StatNeg", stat, neg);
  return test;
}

void ExpectCounts(OpTest& test, const std::string& slot, const Counts& counts) {
  const Tensor got = test.Output(slot);
  EXPECT_EQ(Counts(got.data<int64_t>(), got.data<int64_t>() + got.numel()), counts) << slot;
}

// Three of the four pairs of a positive and a negative row are in order.
TEST(Auc, AllBatches) {
  OpTest test = Auc(0, {1, 4}, {0, 0, 0, 0}, {0, 0, 0, 0});
  test.Expect("AUC", {1}, {0.75}, 1e-12).ExpectDType("AUC", DType::kFloat64);
  ExpectCounts(test, "StatPosOut", {0, 1, 0, 1});
  ExpectCounts(test, "StatNegOut", {1, 0, 1, 0});
  // With one more of each kind, equal.
  OpTest more = Auc(0, {1, 4}, {0, 0, 1, 0}, {0, 0, 1, 0});
  more.Expect("AUC", {1}, {(3 + 1.5 + 0.5 * 2) / 9 + 1.0 / 9 * 0.5}, 1e-12);
  ExpectCounts(more, "StatPosOut", {0, 1, 1, 1});
  Auc(0, {1, 4}, {0, 0, 0, 0}, {0, 0, 0, 0})
      .InPlace("StatPos", "StatPosOut")
      .InPlace("StatNeg", "StatNegOut")
      .Expect("AUC", {1}, {0.75}, 1e-12);
}

// Two batches and their sum; the counter 3 says that this batch replaces the second.
TEST(Auc, SlidingRing) {
  const Counts pos = {1, 0, 0, 0, 0, 0, 0, 9, 1, 0, 0, 9, 3};
  const Counts neg = {0, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 3};
  OpTest test = Auc(2, {1, 13}, pos, neg);
  // Positives in the buckets 0, 1, 3, negatives in 0 and 2.
  test.Expect("AUC", {1}, {(1 + 2.5) / 6}, 1e-12);
  ExpectCounts(test, "StatPosOut", {1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 4});
  ExpectCounts(test, "StatNegOut", {0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 4});
}

// The older layout: rows of batches, the oldest leaves.
TEST(Auc, SlidingRows) {
  OpTest test = Auc(2, {2, 4}, {0, 0, 0, 9, 1, 0, 0, 0}, {5, 0, 0, 0, 0, 0, 0, 0});
  test.Expect("AUC", {1}, {(1 + 2.5) / 6}, 1e-12);
  ExpectCounts(test, "StatPosOut", {1, 0, 0, 0, 0, 1, 0, 1});
  ExpectCounts(test, "StatNegOut", {0, 0, 0, 0, 1, 0, 1, 0});
  Auc(1, {1, 4}, {0, 0, 0, 9}, {5, 0, 0, 0}).Expect("AUC", {1}, {0.75}, 1e-12);
}

TEST(Auc, OneKindOfRows) {
  OpTest test("auc");
  test.Attr("num_thresholds", 1).Attr("slide_steps", 0);
  test.Input("Predict", {3, 1}, {0.25, 1, 0.5}).IntInput("Label", {3}, {1, 7, -1});
  test.IntInput("StatPos", {2}, {0, 0}).IntInput("StatNeg", {2}, {0, 0});
  test.Expect("AUC", {1}, {0});
  ExpectCounts(test, "StatPosOut", {1, 1});
  ExpectCounts(test, "StatNegOut", {0, 0});
}

TEST(Auc, NoRows) {
  OpTest("auc")
      .Attr("num_thresholds", 1)
      .Attr("slide_steps", 0)
      .Input("Predict", {0, 2}, {})
      .IntInput("Label", {0, 1}, {})
      .IntInput("StatPos", {2}, {0, 1})
      .IntInput("StatNeg", {2}, {1, 0})
      .Expect("AUC", {1}, {1});
}

TEST(Auc, Constraints) {
  const auto refused = [](const Shape& predict, const Shape& label, const Shape& stat,
                          int32_t slide_steps, double p, const char* id) {
    OpTest test("auc");
    test.Attr("num_thresholds", 3).Attr("slide_steps", slide_steps);
    test.Input("Predict", predict, std::vector<double>(static_cast<size_t>(predict.numel()), p));
    test.IntInput("Label", label, Counts(static_cast<size_t>(label.numel()), 0));
    test.IntInput("StatPos", stat, Counts(static_cast<size_t>(stat.numel()), 0));
    test.IntInput("StatNeg", stat, Counts(static_cast<size_t>(stat.numel()), 0)).ExpectError(id);
  };
  refused({2, 3}, {2, 1}, {4}, 0, 0, "auc.C1");
  refused({2, 2}, {3, 1}, {4}, 0, 0, "auc.C2");
  refused({2, 2}, {2, 2}, {4}, 0, 0, "auc.C2");
  refused({2, 2}, {2, 1}, {5}, 0, 0, "auc.C3");
  refused({2, 2}, {2, 1}, {12}, 2, 0, "auc.C3");
  refused({2, 2}, {2, 1}, {4}, -1, 0, "auc.C3");
  for (double p : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
    refused({2, 2}, {2, 1}, {4}, 0, p, "auc.C4");
}
}  // namespace coracle::auc_test
