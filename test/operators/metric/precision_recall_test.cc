#include <coracle/test/op_test.h>

namespace coracle::precision_recall_test {

OpTest Rows(bool weighted) {
  OpTest test("precision_recall");
  test.Attr("class_number", 3).RandomInput("MaxProbs", {4, 1});
  test.IntInput("Indices", {4, 1}, {0, 1, 1, 1}, DType::kInt32);
  test.IntInput("Labels", {4, 1}, {0, 1, 0, 1}, DType::kInt32);
  if (weighted) test.Input("Weights", {4, 1}, {1, 0.5, 2, 0.5});
  return test;
}

double F1(double p, double r) { return 2 * p * r / (p + r); }

// Class 2 does not occur: a share of nothing is 1.
TEST(PrecisionRecall, Values) {
  const double p = (1 + 2.0 / 3 + 1) / 3, r = (0.5 + 1 + 1) / 3;
  Rows(false)
      .Expect("AccumStatesInfo", {3, 4}, {1, 0, 2, 1, 2, 1, 1, 0, 0, 0, 4, 0})
      .Expect("BatchMetrics", {6}, {p, r, F1(p, r), 0.75, 0.75, 0.75}, 1e-12)
      .Expect("AccumMetrics", {6}, {p, r, F1(p, r), 0.75, 0.75, 0.75}, 1e-12)
      .ExpectDType("BatchMetrics", DType::kFloat64);
  const double wp = (1 + 1.0 / 3 + 1) / 3, wr = (1.0 / 3 + 1 + 1) / 3;
  Rows(true)
      .Expect("AccumStatesInfo", {3, 4}, {1, 0, 1, 2, 1, 2, 1, 0, 0, 0, 4, 0})
      .Expect("BatchMetrics", {6}, {wp, wr, F1(wp, wr), 0.5, 0.5, 0.5}, 1e-12);
}

TEST(PrecisionRecall, Accumulates) {
  const std::vector<double> before = {0, 0, 0, 4, 2, 1, 0, 0, 0, 4, 0, 0};
  const double p = (1 + 4.0 / 6 + 0) / 3, r = (1.0 / 6 + 1 + 1) / 3;
  for (const bool in_place : {false, true}) {
    OpTest test = Rows(false);
    test.Input("StatesInfo", {3, 4}, before);
    if (in_place) test.InPlace("StatesInfo", "AccumStatesInfo");
    test.Expect("AccumStatesInfo", {3, 4}, {1, 0, 2, 5, 4, 2, 1, 0, 0, 4, 4, 0});
    const double mp = 5.0 / 11, mr = 0.5;
    test.Expect("AccumMetrics", {6}, {p, r, F1(p, r), mp, mr, F1(mp, mr)}, 1e-12);
  }
}

TEST(PrecisionRecall, NothingRight) {
  OpTest("precision_recall")
      .Attr("class_number", 2)
      .RandomInput("MaxProbs", {2, 1})
      .IntInput("Indices", {2, 1}, {0, 1})
      .IntInput("Labels", {2, 1}, {1, 0})
      .Expect("BatchMetrics", {6}, {0, 0, 0, 0, 0, 0});
  OpTest("precision_recall")
      .Attr("class_number", 2)
      .Input("MaxProbs", {0, 1}, {})
      .IntInput("Indices", {0, 1}, {})
      .IntInput("Labels", {0, 1}, {})
      .Expect("BatchMetrics", {6}, {1, 1, 1, 1, 1, 1});
}

TEST(PrecisionRecall, Constraints) {
  const auto refused = [](const Shape& labels, const Shape& weights, const Shape& states,
                          int32_t classes, const char* id) {
    OpTest test("precision_recall");
    test.Attr("class_number", classes).RandomInput("MaxProbs", {2, 1});
    test.IntInput("Indices", {2, 1}, {0, 0});
    test.IntInput("Labels", labels, std::vector<int64_t>(static_cast<size_t>(labels.numel()), 0));
    test.RandomInput("Weights", weights).RandomInput("StatesInfo", states).ExpectError(id);
  };
  refused({3, 1}, {2, 1}, {3, 4}, 3, "precision_recall.C1");
  refused({2, 1}, {3, 1}, {3, 4}, 3, "precision_recall.C2");
  refused({2, 1}, {2, 1}, {3, 3}, 3, "precision_recall.C3");
  refused({2, 1}, {2, 1}, {3, 4}, 0, "precision_recall.C4");
  for (int64_t bad : {int64_t{3}, int64_t{-1}}) {
    for (const bool label : {false, true}) {
      OpTest("precision_recall")
          .Attr("class_number", 3)
          .RandomInput("MaxProbs", {1, 1})
          .IntInput("Indices", {1, 1}, {label ? 0 : bad})
          .IntInput("Labels", {1, 1}, {label ? bad : 0})
          .ExpectError(std::string("precision_recall: ") + (label ? "Labels" : "Indices") +
                       " holds " + std::to_string(bad));
    }
  }
}
}  // namespace coracle::precision_recall_test
