#include <coracle/test/train/train_test_util.h>
#include <coracle/train/report/metric.h>
#include <coracle/train/report/window.h>

#include <cmath>
#include <limits>
#include <random>

namespace coracle::metric_test {

const Tensor kNothing;

TEST(Metric, MeanAndPerplexityWeighRows) {
  auto mean = MakeMetricSum({"loss", "loss"});
  auto perplexity = MakeMetricSum({"loss", "ppl", MetricKind::kPerplexity});
  EXPECT_TRUE(std::isnan(mean->Value()));
  for (MetricSum* sum : {mean.get(), perplexity.get()}) {
    sum->Add(Tensor::Of<float>({1}, {2}), kNothing, 30);
    sum->Add(Tensor::Of<double>({1}, {5}), kNothing, 10);
  }
  EXPECT_DOUBLE_EQ(mean->Value(), 2.75);
  EXPECT_DOUBLE_EQ(perplexity->Value(), std::exp(2.75));
  mean->Clear();
  EXPECT_TRUE(std::isnan(mean->Value()));
  ExpectContains(ErrorOf([&] {
                   mean->Add(Tensor::Of<float>({2}, {1, 2}), kNothing, 1);
                 }),
                 "'loss' must hold one number");
}

TEST(Metric, TopK) {
  const Tensor scores = Tensor::Of<float>({3, 4}, {.1f, .7f, .2f, 0,    //
                                                   .4f, .4f, .1f, .1f,  //
                                                   .5f, .2f, .2f, .1f});
  const Tensor labels = Tensor::Of<int64_t>({3, 1}, {2, 1, 2});
  // Places of the labels: 2nd; 2nd (a tie: class 0 comes first); 3rd.
  const double expected[] = {0, 2.0 / 3, 1, 1};
  for (int64_t k = 1; k <= 4; ++k) {
    auto sum = MakeMetricSum({"p", "top", MetricKind::kAccuracy, "label", k});
    sum->Add(scores, labels, 3);
    EXPECT_DOUBLE_EQ(sum->Value(), expected[k - 1]) << k;
  }
  auto sum = MakeMetricSum({"p", "top", MetricKind::kAccuracy, "label", 1});
  ExpectContains(ErrorOf([&] {
                   sum->Add(scores, Tensor::Of<float>({3}, {0, 1, 2}), 3);
                 }),
                 "there must be one integer per row");
  ExpectContains(ErrorOf([&] {
                   sum->Add(scores, Tensor::Of<int64_t>({5}, {0, 1, 2, 0, 0}), 3);
                 }),
                 "there must be one integer per row");
}

TEST(Metric, NansAreNeverRight) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Tensor scores = Tensor::Of<float>({4, 3}, {kNan, kNan, kNan,  //
                                                   kNan, .9f, .1f,    //
                                                   .1f, .9f, kNan,    //
                                                   kNan, .9f, .1f});
  const Tensor labels = Tensor::Of<int64_t>({4, 1}, {0, 1, 1, 0});
  const double expected[] = {0, 0.5, 0.5};  // a nan takes the first place
  for (int64_t k = 1; k <= 3; ++k) {
    auto sum = MakeMetricSum({"p", "top", MetricKind::kAccuracy, "label", k});
    sum->Add(scores, labels, 4);
    EXPECT_DOUBLE_EQ(sum->Value(), expected[k - 1]) << k;
  }
  auto auc = MakeMetricSum({"p", "auc", MetricKind::kAuc, "label"});
  auc->Add(Tensor::Of<float>({3, 1}, {.1f, kNan, .9f}), Tensor::Of<int64_t>({3}, {0, 0, 1}), 3);
  EXPECT_TRUE(std::isnan(auc->Value()));
  auto again = MakeMetricSum({"p", "auc", MetricKind::kAuc, "label"});
  again->Load(auc->Save());
  EXPECT_TRUE(std::isnan(again->Value()));
}

TEST(Metric, LabelsBeyondTheScoresAreRefused) {
  auto top = MakeMetricSum({"p", "top", MetricKind::kAccuracy, "label", 1});
  EXPECT_EQ(
      ErrorOf([&] {
        top->Add(Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), Tensor::Of<int64_t>({2}, {0, 2}), 2);
      }),
      "metric 'top': label[1] is 2, which must lie in [0, 2)");
  auto auc = MakeMetricSum({"p", "auc", MetricKind::kAuc, "label"});
  EXPECT_EQ(ErrorOf([&] {
              auc->Add(Tensor::Of<float>({2, 1}, {1, 2}), Tensor::Of<int64_t>({2}, {0, 7}), 2);
            }),
            "metric 'auc': label[1] is 7, but auc takes labels 0 and 1");
}

// Against all pairs, one by one.
TEST(Metric, AucIsTheShareOfOrderedPairs) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    const int64_t rows = 2 + static_cast<int64_t>(random() % 60);
    std::vector<float> scores;
    std::vector<int64_t> labels;
    for (int64_t r = 0; r < rows; ++r) {
      scores.push_back(static_cast<float>(random() % 10) / 10);  // with ties
      labels.push_back(r < 2 ? r : static_cast<int64_t>(random() % 2));
    }
    double right = 0, pairs = 0;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < rows; ++j) {
        const auto a = static_cast<size_t>(i), b = static_cast<size_t>(j);
        if (labels[a] != 1 || labels[b] != 0) continue;
        ++pairs;
        right += scores[a] > scores[b] ? 1 : scores[a] == scores[b] ? 0.5 : 0;
      }
    }
    auto auc = MakeMetricSum({"p", "auc", MetricKind::kAuc, "label"});
    const int64_t half = rows / 2;  // in two batches
    const std::span<const float> all(scores);
    const std::span<const int64_t> all_labels(labels);
    auto part = [&](int64_t first, int64_t n) {
      auc->Add(
          Tensor::Of<float>({n, 1},
                            all.subspan(static_cast<size_t>(first)).first(static_cast<size_t>(n))),
          Tensor::Of<int64_t>(
              {n, 1}, all_labels.subspan(static_cast<size_t>(first)).first(static_cast<size_t>(n))),
          n);
    };
    part(0, half);
    part(half, rows - half);
    EXPECT_NEAR(auc->Value(), right / pairs, 1e-12);
    auto again = MakeMetricSum({"p", "auc", MetricKind::kAuc, "label"});
    again->Load(auc->Save());
    EXPECT_EQ(again->Value(), auc->Value());
  }
  auto auc = MakeMetricSum({"p", "auc", MetricKind::kAuc, "label"});
  // The second of two columns is the score of class 1.
  auc->Add(Tensor::Of<float>({2, 2}, {.9f, .1f, .2f, .8f}), Tensor::Of<int64_t>({2}, {0, 1}), 2);
  EXPECT_EQ(auc->Value(), 1);
  auc->Clear();
  auc->Add(Tensor::Of<float>({1, 1}, {1}), Tensor::Of<int64_t>({1}, {1}), 1);
  EXPECT_TRUE(std::isnan(auc->Value()));  // of one class there are no pairs
  ExpectContains(ErrorOf([&] {
                   auc->Add(Tensor::Of<float>({1, 3}, {1, 2, 3}), Tensor::Of<int64_t>({1}, {1}), 1);
                 }),
                 "auc is of two classes");
}

TEST(Metric, ConfusionCountsLabelsAndAnswers) {
  const MetricConfig config = {"p", "matrix", MetricKind::kConfusion, "label"};
  const Tensor scores = Tensor::Of<float>({5, 3}, {1, 0, 0, 0, 2, 1, 0, 0, 3, 5, 4, 4, 0, NAN, 1});
  const Tensor labels = Tensor::Of<int64_t>({5, 1}, {0, 1, 1, 2, 0});
  auto sum = MakeMetricSum(config);
  EXPECT_EQ(sum->Confusion()->classes, 0);
  sum->Add(scores, labels, 5);
  // A row with a nan has no answer.
  const std::vector<int64_t> want = {1, 0, 0, 0, 1, 1, 1, 0, 0};
  EXPECT_EQ(sum->Confusion()->counts, want);
  EXPECT_EQ(sum->Confusion()->name, "matrix");
  auto again = MakeMetricSum(config);
  again->Load(sum->Save());
  again->Merge(sum->Save().Reshaped({9}));  // as a rank sends it
  std::vector<int64_t> twice = want;
  for (int64_t& count : twice) count *= 2;
  EXPECT_EQ(again->Confusion()->counts, twice);
  ExpectContains(ErrorOf([&] {
                   again->Merge(Tensor::Of<double>({5}, {1, 2, 3, 4, 5}));
                 }),
                 "the saved state of a confusion matrix");
  ExpectContains(ErrorOf([&] {
                   sum->Add(scores, Tensor::Of<int64_t>({5, 1}, {0, 1, 3, 2, 0}), 5);
                 }),
                 "label[2] is 3, which must lie in [0, 3)");
  // One score of a row is that of class 1.
  auto one = MakeMetricSum(config);
  one->Add(Tensor::Of<float>({3, 1}, {.1f, .9f, .7f}), Tensor::Of<int64_t>({3, 1}, {0, 0, 1}), 3);
  EXPECT_EQ(one->Confusion()->counts, (std::vector<int64_t>{1, 1, 0, 1}));
}

// The scores of a batch without rows do not show how many classes there are.
TEST(Metric, ConfusionOfEmptyBatches) {
  auto sum = MakeMetricSum({"p", "matrix", MetricKind::kConfusion, "label"});
  const Tensor none = Tensor(DType::kInt64, {0, 1});
  sum->Add(Tensor(DType::kFloat32, {0, 1}), none, 0);
  EXPECT_EQ(sum->Confusion()->classes, 0);
  sum->Add(Tensor::Of<float>({1, 3}, {0, 1, 0}), Tensor::Of<int64_t>({1, 1}, {1}), 1);
  sum->Add(Tensor(DType::kFloat32, {0, 5}), none, 0);
  EXPECT_EQ(sum->Confusion()->classes, 3);
  EXPECT_EQ(sum->Confusion()->counts, (std::vector<int64_t>{0, 0, 0, 0, 1, 0, 0, 0, 0}));
}

// It is no number of the sums.
TEST(Metric, ConfusionHasNoPlaceAmongTheValues) {
  MetricSums sums("loss", {{"p", "matrix", MetricKind::kConfusion, "label"}, {"acc", "acc"}});
  EXPECT_EQ(sums.fetches(), (std::vector<std::string>{"loss", "p", "label", "acc"}));
  const std::vector<Tensor> fetched = {
      Tensor::Of<float>({1}, {3}), Tensor::Of<float>({1, 2}, {1, 0}),
      Tensor::Of<int64_t>({1, 1}, {1}), Tensor::Of<float>({1}, {0.5f})};
  sums.Add(fetched, 1);
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums.Value(0), 3);
  EXPECT_EQ(sums.Value(1), 0.5);
  ASSERT_EQ(sums.Confusions().size(), 1u);
  EXPECT_EQ(sums.Confusions()[0].counts, (std::vector<int64_t>{0, 0, 1, 0}));
}

TEST(Metric, ErrorsAreInTheLabelsUnit) {
  for (const auto& [kind, want] : {std::pair(MetricKind::kMae, 0.5 * 40),
                                   std::pair(MetricKind::kRmse, std::sqrt(0.375) * 40)}) {
    MetricConfig config = {"p", "error", kind, "y"};
    config.unit = 40;
    auto sum = MakeMetricSum(config);
    sum->Add(Tensor::Of<float>({4}, {1, 2, 3, 4}), Tensor::Of<float>({4}, {1, 2.5f, 4, 3.5f}), 4);
    EXPECT_NEAR(sum->Value(), want, 1e-12);
  }
}

std::vector<double> Shown(StepWindow& window, const std::vector<double>& losses) {
  std::vector<double> shown;
  for (double loss : losses) {
    const Tensor fetched[] = {Tensor::Of<double>({1}, {loss})};
    window.Add(fetched, 8, loss, 8);
    shown.push_back(window.MeanLoss());
  }
  return shown;
}

// Caffe's average_loss (solver.cpp, UpdateSmoothedLoss) with k = 3 and the losses 4 2 6 8 1 3.
TEST(StepWindow, AverageLossIsTheMeanOfTheLastSteps) {
  StepWindow window("loss", {}, 3);
  const std::vector<double> shown = Shown(window, {4, 2, 6, 8, 1, 3});
  const std::vector<double> expected = {4, 3, 4, 16.0 / 3, 5, 4};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_DOUBLE_EQ(shown[i], expected[i]) << i;
}

// An incremental mean would be left with what cancelled, even below 0.
TEST(StepWindow, NothingCancels) {
  StepWindow window("loss", {}, 2);
  const std::vector<double> shown = Shown(window, {1e17, 1e-3, 2e-3, 4e-3});
  EXPECT_DOUBLE_EQ(shown[2], 1.5e-3);
  EXPECT_DOUBLE_EQ(shown[3], 3e-3);
}

TEST(StepWindow, GoesOnAfterSaveAndLoad) {
  const std::vector<double> losses = {4, 2, 6, 8, 1, 3, 9};
  StepWindow whole("loss", {}, 4);
  const std::vector<double> expected = Shown(whole, losses);
  for (size_t stop = 0; stop <= losses.size(); ++stop) {
    const auto at = losses.begin() + static_cast<ptrdiff_t>(stop);
    StepWindow first("loss", {}, 4), second("loss", {}, 4);
    std::vector<double> shown = Shown(first, {losses.begin(), at});
    second.Load(first.Save());
    const std::vector<double> rest = Shown(second, {at, losses.end()});
    shown.insert(shown.end(), rest.begin(), rest.end());
    EXPECT_EQ(shown, expected) << stop;
  }
  StepWindow other("loss", {{"acc", "accuracy"}}, 4);
  ExpectContains(ErrorOf([&] { other.Load(whole.Save()); }), "metric_1 is missing");
}

TEST(StepWindow, AShorterOneTakesTheNewestLosses) {
  StepWindow four("loss", {}, 4), two("loss", {}, 2), eight("loss", {}, 8);
  Shown(four, {4, 2, 6, 8, 1, 3});
  two.Load(four.Save());
  EXPECT_DOUBLE_EQ(two.MeanLoss(), 2);
  EXPECT_DOUBLE_EQ(Shown(two, {9})[0], 6);
  eight.Load(four.Save());
  EXPECT_DOUBLE_EQ(eight.MeanLoss(), 4.5);
}
}  // namespace coracle::metric_test
