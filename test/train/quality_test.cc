// Measures of quality against numbers computed by hand and against written-out loops.

#include <coracle/test/train/train_test_util.h>
#include <coracle/train/report/metric.h>
#include <coracle/train/report/quality.h>

#include <cmath>
#include <limits>
#include <random>

namespace coracle::quality_test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

using Scores = std::vector<double>;
using Marks = std::vector<uint8_t>;

TEST(Curves, RocByHand) {
  // Of the four pairs of a 1 and a 0, three are in order: .8 > .1, .8 > .4, .35 > .1.
  const ScoreCurve roc = RocOf(Scores{.1, .4, .35, .8}, Marks{0, 0, 1, 1});
  EXPECT_DOUBLE_EQ(roc.area, 0.75);
  ASSERT_EQ(roc.points.size(), 5u);
  const double x[] = {0, 0, .5, .5, 1}, y[] = {0, .5, .5, 1, 1};
  const double thresholds[] = {kInf, .8, .4, .35, .1};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(roc.points[i].x, x[i]) << i;
    EXPECT_DOUBLE_EQ(roc.points[i].y, y[i]) << i;
    EXPECT_EQ(roc.points[i].threshold, thresholds[i]) << i;
  }
  // Precision 1 at recall 1/2, and 2/3 at recall 1.
  const ScoreCurve area = PrecisionRecallOf(Scores{.1, .4, .35, .8}, Marks{0, 0, 1, 1});
  EXPECT_DOUBLE_EQ(area.area, 0.5 * 1 + 0.5 * 2 / 3);
  ASSERT_EQ(area.points.size(), 4u);
  EXPECT_DOUBLE_EQ(area.points[2].x, 1);
  EXPECT_DOUBLE_EQ(area.points[2].y, 2.0 / 3);
  EXPECT_DOUBLE_EQ(area.points[3].y, 0.5);
}

TEST(Curves, EqualScoresAreOnePoint) {
  const ScoreCurve roc = RocOf(Scores{3, 3, 3, 3, 3}, Marks{1, 0, 0, 1, 0});
  EXPECT_DOUBLE_EQ(roc.area, 0.5);
  EXPECT_EQ(roc.points.size(), 2u);
  const ScoreCurve area = PrecisionRecallOf(Scores{3, 3, 3, 3, 3}, Marks{1, 0, 0, 1, 0});
  EXPECT_DOUBLE_EQ(area.area, 0.4);
  EXPECT_EQ(area.points.size(), 1u);
}

// The area against all pairs; average precision against counts at each threshold.
TEST(Curves, AgainstLoops) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    const size_t rows = 2 + random() % 40;
    Scores scores;
    Marks marks;
    for (size_t r = 0; r < rows; ++r) {
      scores.push_back(static_cast<double>(random() % 8) - 4);
      marks.push_back(r < 2 ? r : random() % 2);
    }
    if (round % 7 == 0) scores[0] = -kInf;
    double right = 0, pairs = 0, ones = 0;
    for (size_t i = 0; i < rows; ++i) {
      ones += marks[i];
      for (size_t j = 0; j < rows; ++j) {
        if (!marks[i] || marks[j]) continue;
        ++pairs;
        right += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
      }
    }
    EXPECT_NEAR(RocOf(scores, marks).area, right / pairs, 1e-12);
    double average = 0, recall = 0;
    for (double t = 4; t >= -5; --t) {
      const double threshold = t < -4 ? -kInf : t;
      double hit = 0, called = 0;
      for (size_t i = 0; i < rows; ++i) {
        if (scores[i] < threshold) continue;
        ++called;
        hit += marks[i];
      }
      if (called == 0) continue;
      average += (hit / ones - recall) * hit / called;
      recall = hit / ones;
    }
    EXPECT_NEAR(PrecisionRecallOf(scores, marks).area, average, 1e-12);
  }
}

TEST(Curves, UndefinedOnes) {
  for (const ScoreCurve& curve :
       {RocOf(Scores{}, Marks{}), RocOf(Scores{1, 2}, Marks{1, 1}),
        RocOf(Scores{1, 2}, Marks{0, 0}), RocOf(Scores{1, kNan}, Marks{0, 1}),
        PrecisionRecallOf(Scores{}, Marks{}), PrecisionRecallOf(Scores{1, 2}, Marks{0, 0}),
        PrecisionRecallOf(Scores{1, kNan}, Marks{0, 1})}) {
    EXPECT_TRUE(std::isnan(curve.area));
    EXPECT_TRUE(curve.points.empty());
  }
  Scores scores;
  for (int i = 0; i < 49; ++i) scores.push_back(i);
  EXPECT_EQ(PrecisionRecallOf(scores, Marks(49, 1)).area, 1);
}

TEST(Curves, ThinnedPointsHaveBothEnds) {
  std::vector<CurvePoint> points;
  for (int i = 0; i < 1000; ++i) points.push_back({static_cast<double>(i), 0, 0});
  const auto thin = ThinnedPoints(points, 7);
  ASSERT_EQ(thin.size(), 7u);
  EXPECT_EQ(thin.front().x, 0);
  EXPECT_EQ(thin.back().x, 999);
  EXPECT_EQ(ThinnedPoints(points, 1000).size(), 1000u);
}

TEST(Curves, CalibrationByHand) {
  // 0.3 lies in (0.2, 0.3], 0.31 and 0.4 in (0.3, 0.4], 1 in the last bin, 0 in the first.
  const CalibrationCurve curve = CalibrationOf(Scores{0, 0.3, 0.31, 0.4, 1}, Marks{0, 1, 0, 1, 1});
  ASSERT_EQ(curve.bins.size(), 10u);
  EXPECT_EQ(curve.bins[0].rows, 1);
  EXPECT_EQ(curve.bins[2].rows, 1);
  EXPECT_EQ(curve.bins[3].rows, 2);
  EXPECT_EQ(curve.bins[9].rows, 1);
  EXPECT_DOUBLE_EQ(curve.bins[3].confidence, 0.355);
  EXPECT_DOUBLE_EQ(curve.bins[3].accuracy, 0.5);
  EXPECT_TRUE(std::isnan(curve.bins[5].accuracy));
  EXPECT_NEAR(curve.error, (0 + 0.7 + 2 * 0.145 + 0) / 5, 1e-12);
  EXPECT_TRUE(std::isnan(CalibrationOf(Scores{}, Marks{}).error));
  EXPECT_TRUE(std::isnan(CalibrationOf(Scores{1.5}, Marks{1}).error));
  EXPECT_TRUE(std::isnan(CalibrationOf(Scores{kNan}, Marks{1}).error));
}

TEST(Curves, Histogram) {
  const ResidualHistogram h = HistogramOf(Scores{0, 1, 2, 3, 4, kNan, kInf}, 4);
  EXPECT_EQ(h.counts, (std::vector<int64_t>{1, 1, 1, 2}));
  EXPECT_EQ(HistogramOf(Scores{5, 5}, 4).counts, std::vector<int64_t>{2});
  EXPECT_TRUE(HistogramOf(Scores{kNan}, 4).counts.empty());
  EXPECT_EQ(HistogramOf(Scores{-1.7e308, 0, 1.7e308}, 2).counts, (std::vector<int64_t>{1, 2}));
}

// Scores whose largest is the answer.
ScoredRows RowsOf(int64_t classes, const std::vector<int64_t>& labels,
                  const std::vector<int64_t>& answers) {
  ScoredRows rows{classes, {}, labels};
  for (const int64_t answer : answers)
    for (int64_t c = 0; c < classes; ++c)
      rows.scores.push_back(c == answer ? 0.8 : 0.2 / (classes - 1.0));
  return rows;
}

// cat, dog, pig, ...: precision 2/3, 0, 0; recall 1, 0, 0.
TEST(ScoreQuality, ByHand) {
  const ScoreQuality q = MeasureScores(RowsOf(3, {0, 1, 2, 0, 1, 2}, {0, 2, 1, 0, 0, 1}), 2);
  EXPECT_DOUBLE_EQ(q.accuracy, 2.0 / 6);
  EXPECT_DOUBLE_EQ(q.by_class[0].precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(q.by_class[0].recall, 1);
  EXPECT_DOUBLE_EQ(q.by_class[0].f1, 0.8);
  EXPECT_EQ(q.by_class[1].f1, 0);
  EXPECT_FALSE(q.by_class[1].no_precision);
  EXPECT_DOUBLE_EQ(q.macro.precision, 2.0 / 9);
  EXPECT_DOUBLE_EQ(q.macro.recall, 1.0 / 3);
  EXPECT_DOUBLE_EQ(q.macro.f1, 0.8 / 3);
  EXPECT_DOUBLE_EQ(q.micro.f1, 1.0 / 3);
  EXPECT_DOUBLE_EQ(q.weighted.f1, 0.8 / 3);
  EXPECT_EQ(q.confusion.At(1, 2), 1);
  EXPECT_EQ(q.confusion.At(1, 0), 1);
  EXPECT_EQ(q.confusion.At(2, 1), 2);
  EXPECT_EQ(q.confusion.At(2, 2), 0);
  // Of right rows the label has 0.8, else 0.1.
  EXPECT_NEAR(q.log_loss, -(2 * std::log(0.8) + 4 * std::log(0.1)) / 6, 1e-12);
  EXPECT_NEAR(q.brier, (2 * (0.04 + 0.02) + 4 * (0.81 + 0.64 + 0.01)) / 6, 1e-12);
  EXPECT_NEAR(q.calibration.error, 0.8 - 2.0 / 6, 1e-12);
}

TEST(ScoreQuality, ClassesWithoutRowsAreMarked) {
  // Class 1 has no answers, class 2 no labels, class 3 neither.
  const ScoreQuality q = MeasureScores(RowsOf(4, {0, 0, 1}, {0, 2, 2}), 1);
  EXPECT_TRUE(q.by_class[1].no_precision);
  EXPECT_FALSE(q.by_class[1].no_recall);
  EXPECT_TRUE(q.by_class[2].no_recall);
  EXPECT_TRUE(q.by_class[3].no_precision && q.by_class[3].no_recall);
  EXPECT_EQ(q.by_class[3].f1, 0);
  // F1: 2/3, 0, 0; class 3 does not count.
  EXPECT_DOUBLE_EQ(q.macro.f1, 2.0 / 9);
  EXPECT_TRUE(q.macro.no_precision);
  EXPECT_DOUBLE_EQ(q.weighted.f1, 4.0 / 9);
  EXPECT_TRUE(std::isnan(q.roc[2].area));
  EXPECT_FALSE(std::isnan(q.roc[1].area));
}

TEST(ScoreQuality, AgainstLoops) {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    const int64_t classes = 2 + static_cast<int64_t>(random() % 5);
    const size_t n = 1 + random() % 50;
    ScoredRows rows{classes, {}, {}};
    for (size_t r = 0; r < n; ++r) {
      rows.labels.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(classes)));
      for (int64_t c = 0; c < classes; ++c)
        rows.scores.push_back(static_cast<double>(random() % 6));
    }
    const ScoreQuality q = MeasureScores(rows, 2);
    double right = 0, second = 0;
    for (int64_t c = 0; c < classes; ++c) {
      double hit = 0, labelled = 0, answered = 0;
      for (size_t r = 0; r < n; ++r) {
        const double* s = rows.scores.data() + r * static_cast<size_t>(classes);
        int64_t best = 0, before = 0;
        for (int64_t k = 1; k < classes; ++k)
          if (s[k] > s[best]) best = k;
        for (int64_t k = 0; k < classes; ++k) before += s[k] > s[c] || (s[k] == s[c] && k < c);
        hit += best == c && rows.labels[r] == c;
        labelled += rows.labels[r] == c;
        answered += best == c;
        second += rows.labels[r] == c && before < 2;
      }
      right += hit;
      const ClassQuality& own = q.by_class[static_cast<size_t>(c)];
      EXPECT_DOUBLE_EQ(own.precision, answered > 0 ? hit / answered : 0);
      EXPECT_DOUBLE_EQ(own.recall, labelled > 0 ? hit / labelled : 0);
      EXPECT_EQ(own.rows, static_cast<int64_t>(labelled));
    }
    EXPECT_DOUBLE_EQ(q.accuracy, right / static_cast<double>(n));
    EXPECT_DOUBLE_EQ(q.micro.f1, q.accuracy);
    EXPECT_DOUBLE_EQ(q.top_k, second / static_cast<double>(n));
    EXPECT_FALSE(q.no_probabilities.empty());
    EXPECT_TRUE(std::isnan(q.log_loss));
  }
}

TEST(ScoreQuality, OneScoreIsTheProbabilityOfClassOne) {
  const ScoredRows one{1, {0.9, 0.5, 1e-20, 0.6}, {1, 0, 0, 0}};
  ScoredRows two{2, {}, one.labels};
  for (const double p : one.scores) two.scores.insert(two.scores.end(), {1 - p, p});
  const ScoreQuality a = MeasureScores(one, 1), b = MeasureScores(two, 1);
  EXPECT_EQ(a.classes, 2);
  EXPECT_EQ(a.accuracy, 0.75);
  EXPECT_EQ(a.accuracy, b.accuracy);
  EXPECT_EQ(a.confusion.cells, b.confusion.cells);
  EXPECT_DOUBLE_EQ(a.log_loss, b.log_loss);
  EXPECT_DOUBLE_EQ(a.brier, b.brier);
  EXPECT_DOUBLE_EQ(a.roc[0].area, 1);
  EXPECT_DOUBLE_EQ(a.roc[1].area, 1);
  EXPECT_DOUBLE_EQ(a.calibration.error, b.calibration.error);
  ExpectContains(ErrorOf([] {
                   MeasureScores({1, {0.5, 1.5}, {0, 1}}, 1);
                 }),
                 "the only score of row 1 is 1.5: it must be a probability");
}

TEST(ScoreQuality, NansAreWrongAndUnanswered) {
  const ScoreQuality q = MeasureScores({2, {.9, .1, kNan, .9, .2, .8}, {0, 1, 1}}, 1);
  EXPECT_EQ(q.unanswered, 1);
  EXPECT_DOUBLE_EQ(q.accuracy, 2.0 / 3);
  EXPECT_EQ(q.confusion.At(1, -1), 1);
  EXPECT_DOUBLE_EQ(q.by_class[1].recall, 0.5);
  EXPECT_DOUBLE_EQ(q.by_class[1].precision, 1);
  EXPECT_TRUE(std::isnan(q.roc[0].area));
  EXPECT_FALSE(std::isnan(q.roc[1].area));  // the scores of class 1 are numbers
  EXPECT_TRUE(std::isnan(q.log_loss));
  ExpectContains(q.no_probabilities, "row 1 has a score that is nan");
}

TEST(ScoreQuality, RefusesWhatHasNoMeaning) {
  ExpectContains(ErrorOf([] { MeasureScores({2, {}, {}}, 1); }), "there are no rows to measure");
  ExpectContains(ErrorOf([] {
                   MeasureScores({2, {.5, .5}, {2}}, 1);
                 }),
                 "the label of row 0 is 2, which must lie in [0, 2)");
  ExpectContains(ErrorOf([] { MeasureScores({2, {.5, .5}, {-1}}, 1); }), "is -1");
}

TEST(ScoreQuality, OneClassOnly) {
  const ScoreQuality q = MeasureScores({2, {1, 0, 1, 0}, {0, 0}}, 2);
  EXPECT_EQ(q.accuracy, 1);
  EXPECT_EQ(q.log_loss, 0);
  EXPECT_FALSE(std::signbit(q.log_loss));
  EXPECT_TRUE(std::isnan(q.macro_auc));
  EXPECT_DOUBLE_EQ(q.macro_average_precision, 1);
  EXPECT_TRUE(std::isinf(MeasureScores({2, {1, 0}, {1}}, 1).log_loss));
}

TEST(ScoreQuality, TheLeadOverTheLabel) {
  EXPECT_DOUBLE_EQ(LeadOverLabel(Scores{.7, .1, .2}, 0), -.5);
  EXPECT_DOUBLE_EQ(LeadOverLabel(Scores{.7, .1, .2}, 2), .5);
  EXPECT_EQ(LeadOverLabel(Scores{kInf, kInf}, 0), 0);
  EXPECT_EQ(LeadOverLabel(Scores{kNan, 1}, 1), kInf);
  EXPECT_DOUBLE_EQ(LeadOverLabel(Scores{.25}, 1), .5);
}

TEST(NumberQuality, ByHand) {
  const NumberQuality q = MeasureNumbers(Scores{2.5, 0, 2, 8}, Scores{3, -0.5, 2, 7});
  EXPECT_DOUBLE_EQ(q.mean_absolute, 0.5);
  EXPECT_DOUBLE_EQ(q.root_mean_square, std::sqrt(0.375));
  EXPECT_NEAR(q.r2, 1 - 1.5 / 29.1875, 1e-12);
  EXPECT_DOUBLE_EQ(q.median_absolute, 0.5);
  EXPECT_DOUBLE_EQ(q.largest_absolute, 1);
  EXPECT_DOUBLE_EQ(q.mean_residual, 0.25);
}

TEST(NumberQuality, ExtremeValues) {
  // Squares would overflow, or vanish.
  for (const double unit : {1e300, 1e-300}) {
    const NumberQuality q = MeasureNumbers(Scores{2.5 * unit, 0, 2 * unit, 8 * unit},
                                           Scores{3 * unit, -0.5 * unit, 2 * unit, 7 * unit});
    EXPECT_NEAR(q.root_mean_square / unit, std::sqrt(0.375), 1e-12);
    EXPECT_NEAR(q.r2, 1 - 1.5 / 29.1875, 1e-12);
    EXPECT_NEAR(q.mean_absolute / unit, 0.5, 1e-12);
  }
  const NumberQuality constant = MeasureNumbers(Scores{1, 2}, Scores{3, 3});
  EXPECT_TRUE(constant.constant_labels && std::isnan(constant.r2));
  const NumberQuality nan = MeasureNumbers(Scores{1, kNan}, Scores{3, 4});
  EXPECT_EQ(nan.not_finite, 1);
  for (const double v : {nan.mean_absolute, nan.root_mean_square, nan.r2, nan.median_absolute,
                         nan.largest_absolute, nan.mean_residual})
    EXPECT_TRUE(std::isnan(v));
  const NumberQuality inf = MeasureNumbers(Scores{1, kInf}, Scores{3, 4});
  EXPECT_EQ(inf.mean_absolute, kInf);
  EXPECT_EQ(inf.root_mean_square, kInf);
  EXPECT_EQ(inf.r2, -kInf);
  EXPECT_EQ(MeasureNumbers(Scores{3, 4}, Scores{3, 4}).r2, 1);
  EXPECT_EQ(MeasureNumbers(Scores{3, 4}, Scores{3, 4}).root_mean_square, 0);
  EXPECT_THROW(MeasureNumbers(Scores{}, Scores{}), Error);
  EXPECT_THROW(MeasureNumbers(Scores{1}, Scores{kNan}), Error);
  EXPECT_THROW(MeasureNumbers(Scores{1}, Scores{}), Error);
}

MetricConfig ConfigOf(MetricKind kind, MetricAverage average = MetricAverage::kMacro) {
  return {"p", "m", kind, "label", 1, average};
}

// Two batches, or two ranks, give the value of all rows, which is no mean over the batches.
TEST(LabelMetrics, CoverTheWholeTestSet) {
  const std::vector<int64_t> labels = {0, 1, 2, 0, 1, 2}, answers = {0, 2, 1, 0, 0, 1};
  const ScoredRows rows = RowsOf(3, labels, answers);
  const ScoreQuality q = MeasureScores(rows, 1);
  const auto part = [&](MetricSum& sum, size_t first, size_t n) {
    const std::span<const double> scores = std::span(rows.scores).subspan(3 * first, 3 * n);
    sum.Add(Tensor::Of<double>({static_cast<int64_t>(n), 3}, scores),
            Tensor::Of<int64_t>({static_cast<int64_t>(n), 1},
                                std::span<const int64_t>(labels).subspan(first, n)),
            static_cast<int64_t>(n));
  };
  for (const auto& [average, quality] : std::vector<std::pair<MetricAverage, ClassQuality>>{
           {MetricAverage::kMacro, q.macro},
           {MetricAverage::kMicro, q.micro},
           {MetricAverage::kWeighted, q.weighted}}) {
    for (const auto& [kind, expected] :
         std::vector<std::pair<MetricKind, double>>{{MetricKind::kPrecision, quality.precision},
                                                    {MetricKind::kRecall, quality.recall},
                                                    {MetricKind::kF1, quality.f1}}) {
      auto sum = MakeMetricSum(ConfigOf(kind, average));
      EXPECT_TRUE(std::isnan(sum->Value()));
      part(*sum, 0, 2);
      part(*sum, 2, 4);
      EXPECT_EQ(sum->Value(), expected);
      auto first = MakeMetricSum(ConfigOf(kind, average));
      auto second = MakeMetricSum(ConfigOf(kind, average));
      part(*first, 0, 5);
      part(*second, 5, 1);
      first->Merge(second->Save());
      first->Merge(MakeMetricSum(ConfigOf(kind, average))->Save());  // a rank without rows
      EXPECT_EQ(first->Value(), expected);
      second->Load(first->Save());
      EXPECT_EQ(second->Value(), expected);
    }
  }
}

TEST(LabelMetrics, LabelsAndNans) {
  auto f1 = MakeMetricSum(ConfigOf(MetricKind::kF1));
  // The second row has no label; the third one no answer.
  f1->Add(Tensor::Of<float>({3, 2}, {.9F, .1F, .9F, .1F, NAN, .1F}),
          Tensor::Of<int64_t>({3}, {0, -100, 0}), 3);
  EXPECT_DOUBLE_EQ(f1->Value(), 2.0 / 3);
  ExpectContains(ErrorOf([&] {
                   f1->Add(Tensor::Of<float>({1, 2}, {1, 2}), Tensor::Of<int64_t>({1}, {2}), 1);
                 }),
                 "metric 'm': label[0] is 2, which must lie in [0, 2)");
  // One score: class 1 above 0.5.
  auto one = MakeMetricSum(ConfigOf(MetricKind::kRecall));
  one->Add(Tensor::Of<float>({3, 1}, {.9F, .5F, .1F}), Tensor::Of<int64_t>({3}, {1, 1, 0}), 3);
  EXPECT_DOUBLE_EQ(one->Value(), 0.75);
  ExpectContains(ErrorOf([&] { one->Load(Tensor::Of<double>({1, 3}, {1, -1, 2})); }), "not counts");
}

TEST(LabelMetrics, Numbers) {
  const std::vector<std::pair<MetricKind, double>> expected = {
      {MetricKind::kMae, 0.5},
      {MetricKind::kRmse, std::sqrt(0.375)},
      {MetricKind::kR2, 1 - 1.5 / 29.1875}};
  for (const auto& [kind, value] : expected) {
    auto sum = MakeMetricSum(ConfigOf(kind)), other = MakeMetricSum(ConfigOf(kind));
    EXPECT_TRUE(std::isnan(sum->Value()));
    sum->Add(Tensor::Of<float>({3, 1}, {2.5F, 0, 2}), Tensor::Of<float>({3}, {3, -0.5F, 2}), 3);
    other->Add(Tensor::Of<float>({1, 1}, {8}), Tensor::Of<int64_t>({1, 1}, {7}), 1);
    sum->Merge(other->Save());
    EXPECT_NEAR(sum->Value(), value, 1e-12);
    ExpectContains(ErrorOf([&] {
                     sum->Add(Tensor::Of<float>({2, 1}, {1, 2}), Tensor::Of<float>({1}, {1}), 2);
                   }),
                   "one label for each number");
    ExpectContains(ErrorOf([&] {
                     sum->Add(Tensor::Of<float>({1}, {1}), Tensor::Of<float>({1}, {INFINITY}), 1);
                   }),
                   "a label 'label' is inf");
  }
}

TEST(LabelMetrics, InJobs) {
  const auto job = [](const std::string& metric) {
    return ParseJobText("name: \"j\" model_text: \"\" metric { " + metric + " }", "j.pbtxt", ".");
  };
  const JobConfig f1 = job("var: 'p' name: 'f1' kind: F1 label: 'l' average: WEIGHTED");
  EXPECT_EQ(f1.metrics[0].kind, MetricKind::kF1);
  EXPECT_EQ(f1.metrics[0].average, MetricAverage::kWeighted);
  EXPECT_EQ(job("var: 'p' kind: R2 label: 'l'").metrics[0].kind, MetricKind::kR2);
  ExpectContains(ErrorOf([&] { job("var: 'p' kind: MAE"); }), "MAE needs label");
  ExpectContains(ErrorOf([&] { job("var: 'p' kind: MAE label: 'l' average: MICRO"); }),
                 "is not of the kind MAE");
  const JobConfig watched = job("var: 'p' name: 'r' kind: RMSE label: 'l'");
  EXPECT_EQ(GoalOf(watched, {"r"}), WatchGoal::kMinimize);
  EXPECT_EQ(GoalOf(f1, {"f1"}), WatchGoal::kMaximize);
}

}  // namespace coracle::quality_test
