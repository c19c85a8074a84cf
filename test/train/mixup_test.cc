// Mixtures of two rows: each is what its soft label says, and depends on seed, epoch and row alone.

#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/rank_jobs.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/run/trainer.h>

#include <cmath>

namespace coracle::mixup_test {

constexpr int64_t kRows = 40, kValues = 6, kClasses = 5;

float ValueOf(int64_t row, int64_t k) { return static_cast<float>((row * 37 + k * 11) % 101); }

DataSourcePtr Rows() {
  std::vector<float> values;
  std::vector<int64_t> labels;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t k = 0; k < kValues; ++k) values.push_back(ValueOf(row, k));
    labels.push_back(row % kClasses);
  }
  return MakeMemorySource({{"data", Tensor::Of<float>({kRows, kValues}, values), {kValues}},
                           {"label", Tensor::Of<int64_t>({kRows, 1}, labels), {1}}},
                          "rows");
}

struct Batch {
  Tensor data, label, soft;
};

Batch BatchOf(const DataSource& source, int64_t epoch, const std::vector<int64_t>& rows,
              bool mixed = true) {
  const auto n = static_cast<int64_t>(rows.size());
  std::vector<Tensor> out{Tensor(DType::kFloat32, {n, kValues}), Tensor(DType::kInt64, {n, 1}),
                          Tensor(DType::kFloat32, {n, source.columns()[2].shape[0]})};
  if (mixed)
    source.GetInEpoch(epoch, rows, out);
  else
    source.Get(rows, out);
  return {out[0], out[1], out[2]};
}

std::vector<int64_t> AllRows() {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < kRows; ++i) rows.push_back(i);
  return rows;
}

// The share of the row itself, if its mixture is one with the row `other`; -1 if it is not.
double ShareWith(const Batch& batch, int64_t row, int64_t other) {
  const float* data = batch.data.data<float>() + row * kValues;
  double share = -1;
  for (int64_t k = 0; k < kValues && share < 0; ++k) {
    const double a = ValueOf(row, k), b = ValueOf(other, k);
    if (a != b) share = (static_cast<double>(data[k]) - b) / (a - b);
  }
  if (row == other) share = 1;
  for (int64_t k = 0; k < kValues; ++k) {
    const double want = share * ValueOf(row, k) + (1 - share) * ValueOf(other, k);
    if (std::abs(want - static_cast<double>(data[k])) > 1e-4) return -1;
  }
  return share >= -1e-6 && share <= 1 + 1e-6 ? share : -1;
}

// One share for all columns of real numbers; weights and integers stay.
TEST(Mixup, AllColumnsOfRealNumbers) {
  std::vector<float> values;
  std::vector<int64_t> labels, ids;
  for (int64_t row = 0; row < kRows; ++row) {
    values.push_back(static_cast<float>(row));
    labels.push_back(row % kClasses);
    ids.push_back(row);
  }
  const Tensor numbers = Tensor::Of<float>({kRows, 1}, values);
  const DataSourcePtr source =
      MakeMixed(MakeMemorySource({{"a", numbers, {1}},
                                  {"b", numbers, {1}},
                                  {"weight", numbers, {1}},
                                  {"ids", Tensor::Of<int64_t>({kRows, 1}, ids), {1}},
                                  {"label", Tensor::Of<int64_t>({kRows, 1}, labels), {1}}},
                                 "rows"),
                {.alpha = 1, .seed = 5});
  std::vector<Tensor> out;
  for (const DataColumn& column : source->columns()) {
    Shape shape{kRows};
    for (const int64_t dim : column.shape) shape.Append(dim);
    out.emplace_back(column.dtype, shape);
  }
  source->GetInEpoch(1, AllRows(), out);
  bool mixed = false;
  for (int64_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(out[0].data<float>()[row], out[1].data<float>()[row]) << row;
    EXPECT_EQ(out[2].data<float>()[row], static_cast<float>(row));
    EXPECT_EQ(out[3].data<int64_t>()[row], row);
    mixed |= out[1].data<float>()[row] != static_cast<float>(row);
  }
  EXPECT_TRUE(mixed);
}

TEST(Mixup, LabelsAreMixedLikeValues) {
  const DataSourcePtr source = MakeMixed(Rows(), {.alpha = 1, .seed = 5});
  EXPECT_EQ(source->columns()[2].shape, (Shape{kClasses}));
  const Batch batch = BatchOf(*source, 3, AllRows());
  int between = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    const float* soft = batch.soft.data<float>() + row * kClasses;
    bool explained = false;
    for (int64_t other = 0; other < kRows && !explained; ++other) {
      const double share = ShareWith(batch, row, other);
      if (share < 0) continue;
      std::vector<double> want(kClasses, 0);
      want[static_cast<size_t>(row % kClasses)] += share;
      want[static_cast<size_t>(other % kClasses)] += 1 - share;
      explained = true;
      for (int64_t c = 0; c < kClasses; ++c)
        explained &= std::abs(want[static_cast<size_t>(c)] - static_cast<double>(soft[c])) < 1e-4;
      const int64_t label = share >= 0.5 ? row % kClasses : other % kClasses;
      explained &= std::abs(share - 0.5) < 1e-4 || batch.label.data<int64_t>()[row] == label;
      between += share > 0.01 && share < 0.99;
    }
    EXPECT_TRUE(explained) << "row " << row;
  }
  EXPECT_GT(between, 30);
}

// The mean of Beta(a, a) is 1 / 2, its variance 1 / (4 (2 a + 1)). Row 0 alone has the class 0, so
// the first element of its soft label is the share.
TEST(Mixup, SharesHaveTheirDistribution) {
  constexpr int64_t kMany = 5000;
  std::vector<int64_t> labels(kMany, 1);
  labels[0] = 0;
  const DataSourcePtr rows =
      MakeMemorySource({{"data", Tensor::Zeros(DType::kFloat32, {kMany, 1}), {1}},
                        {"label", Tensor::Of<int64_t>({kMany, 1}, labels), {1}}},
                       "rows");
  for (const double alpha : {0.1, 0.4, 1.0, 8.0}) {
    const DataSourcePtr source = MakeMixed(rows, {.alpha = alpha, .seed = 11});
    constexpr int kEpochs = 6000;
    double sum = 0, squares = 0;
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      std::vector<Tensor> out{Tensor(DType::kFloat32, {1, 1}), Tensor(DType::kInt64, {1, 1}),
                              Tensor(DType::kFloat32, {1, 2})};
      source->GetInEpoch(epoch, std::vector<int64_t>{0}, out);
      const auto share = static_cast<double>(out[2].data<float>()[0]);
      sum += share, squares += share * share;
    }
    const double mean = sum / kEpochs, variance = squares / kEpochs - mean * mean;
    EXPECT_NEAR(mean, 0.5, 0.03) << alpha;
    EXPECT_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 0.012) << alpha;
  }
}

TEST(Mixup, DependsOnSeedEpochAndRow) {
  const DataSourcePtr source = MakeMixed(Rows(), {.alpha = 1, .seed = 5});
  const Batch all = BatchOf(*source, 2, AllRows());
  for (const int64_t row : {0, 7, 39}) {
    const Batch one = BatchOf(*source, 2, {row});
    for (int64_t k = 0; k < kValues; ++k)
      EXPECT_EQ(one.data.data<float>()[k], all.data.data<float>()[row * kValues + k]);
    for (int64_t c = 0; c < kClasses; ++c)
      EXPECT_EQ(one.soft.data<float>()[c], all.soft.data<float>()[row * kClasses + c]);
  }
  EXPECT_FALSE(BitEqual(BatchOf(*source, 1, AllRows()).data, all.data));
  EXPECT_FALSE(
      BitEqual(BatchOf(*MakeMixed(Rows(), {.alpha = 1, .seed = 6}), 2, AllRows()).data, all.data));
  // Tests see the rows themselves.
  const DataSourcePtr plain = MakeMixed(Rows(), {.classes = 7, .mixes = false});
  const Batch tested = BatchOf(*plain, 2, AllRows());
  EXPECT_TRUE(BitEqual(tested.data, BatchOf(*source, 0, AllRows(), false).data));
  EXPECT_EQ(tested.soft.data<float>()[7 + 1], 1);
  EXPECT_EQ(tested.soft.data<float>()[7], 0);
}

TEST(Mixup, RefusesDataWithoutClasses) {
  ExpectContains(ErrorOf([] { MakeMixed(Rows(), {.classes = 4}); }),
                 "the label 4 must lie in [0, 4)");
  ExpectContains(ErrorOf([] { MakeMixed(Rows(), {.alpha = 0}); }), "alpha must be positive");
  ExpectContains(
      ErrorOf([] {
        MakeMixed(MakeMemorySource({{"x", Tensor::Of<float>({2, 1}, {1, 2}), {1}}}, "r"), {});
      }),
      "mixup: r has no column \"label\"");
}

constexpr const char* kSoft =
    "softmax_with_cross_entropy { logits: 'logits' label: 'soft_label' soft_label: true "
    "output: 'ce' }";

// A job with that loss, and with further fields of its training data.
JobConfig Job(const std::string& loss, const std::string& data = "") {
  JobConfig job = ParseJobText(R"(
name: "mixed" model_text: "data { name: 'image' shape: [-1, 784] } "
  "data { name: 'label' shape: [-1, 1] dtype: INT64 } data { name: 'soft_label' shape: [-1, 10] } "
  "layer { fc { input: 'image' size: 10 output: 'logits' } } "
  "layer { softmax { input: 'logits' output: 'prob' } } layer { )" +
                                   loss + R"( } layer { mean { input: 'ce' output: 'loss' } }"
train { digits { count: 150 } mixup { alpha: 0.4 } )" +
                                   data + R"( }
test { digits { count: 60 } }
metric { var: "prob" name: "accuracy" kind: ACCURACY label: "label" }
optimizer { adam { learning_rate: 0.01 } } batch_size: 20 epochs: 3
deploy { input: "image" output: "prob" })",
                               "job.pbtxt");
  job.output_dir.clear();
  return job;
}

TEST(Mixup, TrainsOnSoftLabels) {
  const TrainResult result = RunJob(Job(kSoft));
  EXPECT_GT(result.loss, 0);
  EXPECT_LT(result.loss, 2.3);
  ASSERT_EQ(result.evaluations.size(), 1u);
  EXPECT_EQ(result.evaluations[0].values[1].name, "accuracy");
  EXPECT_GT(result.evaluations[0].values[1].value, 0.3);
}

// Tests need the number of classes, but not the training data if the job gives it.
TEST(Mixup, TestsOfGivenClassesNeedNoTrainingData) {
  const TempDir dir;
  WriteNpz(
      {{"a", Tensor::Of<float>({2, 1}, {1, 2})}, {"label", Tensor::Of<int64_t>({2, 1}, {0, 1})}},
      dir / "t.npz");
  const auto columns = [&](const std::string& classes) {
    const JobConfig job = ParseJobText("train { npz { file: 'none.npz' } mixup { alpha: 1 " +
                                           classes + " } } test { npz { file: 't.npz' } }",
                                       "job.pbtxt", dir.path());
    return OpenTestData(job, job.TestSets()[0])->columns();
  };
  EXPECT_EQ(columns("classes: 3").back().name, "soft_label");
  EXPECT_EQ(columns("classes: 3").back().shape, (Shape{3}));
  ExpectContains(ErrorOf([&] { columns(""); }), "none.npz");
}

// Integers and sequences of a row stay as they are.
TEST(Mixup, RefusesLossesOfOtherColumns) {
  const std::string text = R"(
name: "m" model_text: "data { name: 'a' shape: [-1, 2] } data { name: 'ids' shape: [-1, 1] dtype: INT64 } "
  "data { name: 'soft_label' shape: [-1, 2] } layer { embedding { input: 'ids' num_embeddings: 3 embedding_dim: 2 output: 'e' } } "
  "layer { reshape { input: 'e' shape: [-1, 2] output: 'f' } } layer { elementwise_add { x: 'a' y: 'f' output: 'h' } } layer { fc { input: 'h' size: 2 output: 'z' } } "
  "layer { softmax_with_cross_entropy { logits: 'z' label: 'soft_label' soft_label: true output: 'ce' } } "
  "layer { mean { input: 'ce' output: 'loss' } }"
train { npz { file: "t.npz" } mixup { alpha: 1 classes: 2 } }
optimizer { sgd { learning_rate: 0.1 } } batch_size: 2 max_iter: 1)";
  const TempDir dir;
  WriteNpz({{"a", Tensor::Of<float>({2, 2}, {1, 2, 3, 4})},
            {"ids", Tensor::Of<int64_t>({2, 1}, {0, 2})},
            {"label", Tensor::Of<int64_t>({2, 1}, {0, 1})}},
           dir / "t.npz");
  JobConfig job = ParseJobText(text, "job.pbtxt", dir.path());
  job.output_dir.clear();
  ExpectContains(ErrorOf([&] { RunJob(job); }), "the loss reads 'ids', whose rows cannot be mixed");
}

// Losses whose declaration says so (OpDef::SoftLabels).
TEST(Mixup, TrainsWithLossesOfProbabilities) {
  for (const char* loss : {"op { bce_loss { X: 'prob' Label: 'soft_label' Out: 'ce' } }",
                           "op { squared_l2_distance { X: 'prob' Y: 'soft_label' Out: 'ce' } }"}) {
    const TrainResult result = RunJob(Job(loss));
    EXPECT_GT(result.evaluations.at(0).values[1].value, 0.3) << loss;
  }
}

TEST(Mixup, RefusesOtherLosses) {
  const auto refused = [](const std::string& loss, const std::string& data = "") {
    return ErrorOf([&] { RunJob(Job(loss, data)); });
  };
  ExpectContains(
      refused("softmax_with_cross_entropy { logits: 'logits' label: 'label' output: 'ce' }"),
      "the loss reads 'label', the label of one row of a mixture");
  ExpectContains(refused("elementwise_sub { x: 'prob' y: 'soft_label' output: 'ce' }"),
                 "elementwise_sub reads 'soft_label', and it is not known to be right");
  ExpectContains(refused("op { huber_loss { X: 'prob' Y: 'soft_label' Out: 'ce' delta: 0.1 } }"),
                 "huber_loss reads 'soft_label', and it is not known to be right");
  ExpectContains(refused("abs { input: 'prob' output: 'ce' }"),
                 "the loss does not read the column soft_label");
  ExpectContains(refused(kSoft, "balance: WEIGHTS"),
                 "does not go together with weights of classes");
}

// An interrupted run goes on to the bits of an undisturbed one.
TEST(Mixup, ResumesToTheBit) {
  JobConfig job = Job(kSoft);
  const TrainResult whole = RunJob(job);
  TempDir dir;
  job.output_dir = dir / "out";
  job.max_iter = 11;  // in the second epoch
  RunJob(job);
  job.max_iter = 0;
  TrainOptions options;
  options.resume = true;
  const TrainResult resumed = RunJob(job, options);
  EXPECT_EQ(resumed.steps, whole.steps);
  ExpectSameBits(resumed.scope, whole.scope, whole.main);
}

// Ranks read parts of the same mixtures.
TEST(Mixup, RanksSeeTheSameRows) {
  const DataSourcePtr source = MakeMixed(Rows(), {.alpha = 1, .seed = 5});
  BatchReader one(source, {.batch_size = 10, .shuffle = true, .seed = 3});
  BatchReader first(source, {.batch_size = 10, .shuffle = true, .seed = 3, .rank = 0, .ranks = 2});
  BatchReader second(source, {.batch_size = 10, .shuffle = true, .seed = 3, .rank = 1, .ranks = 2});
  for (int batch = 0; batch < 9; ++batch) {
    const std::vector<Tensor>&all = one.Next(), &a = first.Next(), &b = second.Next();
    for (size_t c = 0; c < all.size(); ++c) {
      const std::string whole(static_cast<const char*>(all[c].raw()), all[c].nbytes());
      const std::string parts = std::string(static_cast<const char*>(a[c].raw()), a[c].nbytes()) +
                                std::string(static_cast<const char*>(b[c].raw()), b[c].nbytes());
      EXPECT_EQ(whole, parts) << "batch " << batch << ", column " << c;
    }
  }
}

}  // namespace coracle::mixup_test
