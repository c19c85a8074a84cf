// A job on several ranks, here threads: what it learns, shows and saves is what one rank does.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/distribute/rank_run.h>
#include <coracle/test/train/rank_jobs.h>
#include <coracle/train/run/trainer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>

namespace coracle::ranks_test {

TEST(RanksOfAJob, LearnAndShowWhatOneRankDoes) {
  const auto alone = RunOn(1, RankJob("one"));
  const RankResult& one = alone[0];
  ASSERT_EQ(one.error, "");
  for (const int size : {2, 3, 4}) {
    SCOPED_TRACE(size);
    const auto ranks = RunOn(size, RankJob("n" + std::to_string(size)));
    for (const RankResult& rank : ranks) {
      ASSERT_EQ(rank.error, "");
      EXPECT_LT(Difference(rank.result.scope, one.result.scope, one.result.main), 2e-5);
      ExpectSameBits(rank.result.scope, ranks[0].result.scope, one.result.main);
      EXPECT_NEAR(rank.result.loss, one.result.loss, 1e-5);
      ASSERT_EQ(rank.result.metrics.size(), 1u);
      EXPECT_EQ(rank.result.metrics[0].value, one.result.metrics[0].value);
      EXPECT_EQ(rank.steps_told, &rank == &ranks[0] ? one.steps_told : 0);
    }
    ASSERT_EQ(ranks[0].losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(ranks[0].losses[i], one.losses[i], 1e-5) << "step " << i + 1;
  }
}

// 30 sequences of up to 6 digits and the same digits plus one.
std::string SequencesFile() {
  std::vector<uint64_t> offsets{0};
  std::vector<int64_t> x, y;
  for (int i = 0; i < 30; ++i) {
    for (int k = 0; k < 1 + (i * 5) % 6; ++k) {
      x.push_back((3 * i + 7 * k) % 10);
      y.push_back((x.back() + 1) % 10);
    }
    offsets.push_back(x.size());
  }
  const auto count = static_cast<int64_t>(x.size());
  const Tensor at = Tensor::Of<int64_t>({31}, {offsets.begin(), offsets.end()});
  const std::string file = testing::TempDir() + "/ranks_sequences.npz";
  WriteNpz({{"x", Tensor::Of<int64_t>({count, 1}, x)},
            {"x@LOD@0", at},
            {"y", Tensor::Of<int64_t>({count, 1}, y)},
            {"y@LOD@0", at}},
           file);
  return file;
}

constexpr const char* kWithLod = R"(
data { name: "x" shape: [-1, 1] dtype: INT64 lod_level: 1 }
data { name: "y" shape: [-1, 1] dtype: INT64 lod_level: 1 }
layer { parameter { shape: [10, 8] output: "vectors" } }
layer { op { lookup_table { W: "vectors" Ids: "x" Out: "h" } } }
layer { fc { input: "h" size: 10 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "y" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
layer { accuracy { input: "logits" label: "y" output: "acc" } }
)";
// REDUCE of the costs: at all positions, or at the positions of sequences.
constexpr const char* kPadded = R"(
data { name: "x" shape: [-1, -1] dtype: INT64 }
data { name: "n" shape: [-1, 1] dtype: INT64 }
data { name: "y" shape: [-1, -1, 1] dtype: INT64 }
layer { embedding { input: "x" num_embeddings: 10 embedding_dim: 8 output: "h" } }
layer { fc { input: "h" size: 10 num_flatten_dims: 2 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "y" output: "ce" } }
layer { op { fill_any_like { X: "x" Out: "ones" value: 1 } } }
layer { cumsum { input: "ones" axis: 1 output: "position" } }
layer { less_equal { x: "position" y: "n" output: "is_inside" } }
layer { cast { input: "is_inside" dtype: FP32 output: "inside" } }
layer { unsqueeze { input: "inside" axes: 2 output: "counted" } }
layer { elementwise_mul { x: "ce" y: "counted" output: "ce_inside" } }
layer { reduce_sum { input: "ce_inside" output: "ce_sum" } }
layer { reduce_sum { input: "counted" output: "count" } }
layer { elementwise_div { x: "ce_sum" y: "count" output: "of_sequences" } }
layer { mean { input: "ce" output: "of_positions" } }
)";

// A mask that is made of the lengths, and rows that are picked by them.
constexpr const char* kMasked = R"(
data { name: "x" shape: [-1, -1] dtype: INT64 }
data { name: "n" shape: [-1] dtype: INT64 }
data { name: "y" shape: [-1, -1, 1] dtype: INT64 }
layer { embedding { input: "x" num_embeddings: 10 embedding_dim: 8 output: "h" } }
layer { fc { input: "h" size: 10 num_flatten_dims: 2 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "y" output: "ce" } }
layer { op { sequence_mask { X: "n" Y: "inside" maxlen: -1 out_dtype: FP32 } } }
layer { unsqueeze { input: "inside" axes: 2 output: "counted" } }
layer { elementwise_mul { x: "ce" y: "counted" output: "ce_inside" } }
layer { reduce_sum { input: "ce_inside" output: "s" } }
layer { reduce_sum { input: "inside" output: "c" } }
layer { elementwise_div { x: "s" y: "c" output: "by_mask" } }
layer { op { sequence_unpad { X: "ce" Length: "n" Out: "picked" } } }
layer { mean { input: "picked" output: "by_length" } }
)";

// The weight is the number of elements, or of elements that a mask counts, not the number of rows.
TEST(RanksOfAJob, LossesThatAreNoMeansOfRows) {
  const std::string file = SequencesFile();
  const auto run = [&](int size, const std::string& model, const std::string& loss) {
    JobConfig job;
    job.model_text = model;
    job.train.source = job.test.source = NpzOptions{.file = file};
    if (model == kPadded || model == kMasked) job.bind = {{"x@LENGTH", "n"}};
    if (model == kWithLod) job.metrics = {{"acc", "acc"}};
    job.loss = loss;
    job.training.optimizers = {SgdOptions{.learning_rate = 0.5}};
    job.batch_size = 7;
    job.epochs = 4;
    return RunOn(size, job);
  };
  for (const auto& [model, loss] :
       std::vector<std::pair<std::string, std::string>>{{kWithLod, "loss"},
                                                        {kPadded, "of_sequences"},
                                                        {kPadded, "of_positions"},
                                                        {kPadded, "ce_sum"},
                                                        {kMasked, "by_mask"},
                                                        {kMasked, "by_length"}}) {
    SCOPED_TRACE(loss);
    const auto one = run(1, model, loss);
    ASSERT_EQ(one[0].error, "");
    for (const int size : {2, 3}) {
      const auto ranks = run(size, model, loss);
      ASSERT_EQ(ranks[0].error, "");
      const double close = 1e-5 * std::max(1.0, one[0].losses[0]);
      for (size_t i = 0; i < one[0].losses.size(); ++i)
        EXPECT_NEAR(ranks[0].losses[i], one[0].losses[i], close) << "step " << i + 1;
      EXPECT_NEAR(ranks[0].result.loss, one[0].result.loss, close);
      for (size_t i = 0; i < one[0].result.metrics.size(); ++i)
        EXPECT_NEAR(ranks[0].result.metrics[i].value, one[0].result.metrics[i].value, 1e-6);
      EXPECT_LT(Difference(ranks[1].result.scope, one[0].result.scope, one[0].result.main), 2e-5);
      EXPECT_TRUE(ranks[0].messages.empty()) << ranks[0].messages[0];
    }
  }
}

// Statistics of each rank's own rows: evaluations and snapshots have their mean. In a program of
// Paddle they are parameters, and no fault where they differ.
TEST(RanksOfAJob, RunningStatistics) {
  JobConfig job = RankJob("statistics");
  job.model_text = R"(
data { name: "image" shape: [-1, 784] }
data { name: "label" shape: [-1, 1] dtype: INT64 }
layer { fc { input: "image" size: 16 output: "h0" } }
layer { parameter { shape: [16] output: "s" } }
layer { parameter { shape: [16] output: "b" } }
layer { parameter { shape: [16] output: "m" } }
layer { parameter { shape: [16] output: "v" } }
layer { op { batch_norm { X: "h0" Scale: "s" Bias: "b" Mean: "m" Variance: "v" Y: "h"
                          MeanOut: "m" VarianceOut: "v" } } }
layer { fc { input: "h" size: 10 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
layer { softmax { input: "logits" output: "prob" } }
)";
  const auto ranks = RunOn(2, job, {.check_parameters = 1});
  ASSERT_EQ(ranks[0].error, "");
  ExpectSameBits(ranks[0].result.scope, ranks[1].result.scope, ranks[0].result.main);
  ASSERT_FALSE(ranks[0].messages.empty());
  EXPECT_NE(ranks[0].messages[0].find("have their mean over the ranks"), std::string::npos);
}

// debug_info shows the sizes of the whole batch's gradients, however the ranks share them.
TEST(RanksOfAJob, SizesOfGradientsAreThoseOfAllRows) {
  const auto gradients = [](int size, const std::function<void(JobConfig&)>& change) {
    JobConfig job = RankJob("sizes");
    job.debug_info = true;
    job.max_iter = 2;
    job.display = 1;
    job.training.optimizers = {AdamOptions{.learning_rate = 0.01}};
    change(job);
    const auto ranks = RunOn(size, job);
    EXPECT_EQ(ranks[0].error, "");
    std::vector<double> found;
    for (const std::string& line : ranks[0].messages) {
      if (const size_t at = line.find("their gradients: L1 "); at != std::string::npos)
        found.push_back(std::stod(line.substr(at + 20)));
      if (const size_t at = line.find("fc_0.w_0@GRAD: mean |x| "); at != std::string::npos)
        found.push_back(std::stod(line.substr(at + 24)));
    }
    return found;
  };
  for (const auto& change : std::vector<std::function<void(JobConfig&)>>{
           [](JobConfig&) {}, [](JobConfig& job) { job.distribute.shard_state = true; },
           [](JobConfig& job) { job.training.iter_size = 2; }}) {
    const std::vector<double> one = gradients(1, change), two = gradients(2, change);
    ASSERT_EQ(one.size(), 4u);
    ASSERT_EQ(two.size(), 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(two[i] / one[i], 1, 1e-4) << i;
  }
}

TEST(RanksOfAJob, OpsWithASeedOfTheirOwnAreNamed) {
  JobConfig job = RankJob("seeds");
  job.model_text += R"(layer { op { uniform_random { Out: "u" shape: [1] seed: 7 } } })";
  const auto ranks = RunOn(2, job);
  ASSERT_FALSE(ranks[0].messages.empty());
  EXPECT_NE(ranks[0].messages[0].find("uniform_random (0 more) has a seed of its own"),
            std::string::npos)
      << ranks[0].messages[0];
}

// An evaluation with uneven parts, and steps.
TEST(RanksOfAJob, MetricsAreThoseOfAllRows) {
  const auto with_metrics = [](const std::string& name) {
    JobConfig job = RankJob(name);
    job.model_text.replace(job.model_text.find("size: 10"), 8, "size: 2");
    job.train.source = DigitsOptions{.count = 150, .classes = {3, 8}};
    job.test.source = DigitsOptions{.count = 70, .classes = {3, 8}};
    job.metrics.push_back({"loss", "perplexity", MetricKind::kPerplexity});
    job.metrics.push_back({"prob", "auc", MetricKind::kAuc, "label"});
    job.metrics.push_back({"prob", "f1", MetricKind::kF1, "label"});
    job.metrics.push_back({"ce", "rmse", MetricKind::kRmse, "label"});
    job.metrics.push_back({"ce", "r2", MetricKind::kR2, "label"});
    job.metrics.push_back({"prob", "matrix", MetricKind::kConfusion, "label"});
    job.epochs = 1;
    return job;
  };
  const auto one = RunOn(1, with_metrics("one_metrics"));
  ASSERT_EQ(one[0].error, "");
  ASSERT_EQ(one[0].result.metrics.size(), 6u);
  for (const int size : {2, 3, 4}) {
    for (const RankResult& rank : RunOn(size, with_metrics("metrics"))) {
      ASSERT_EQ(rank.error, "");
      for (size_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(rank.result.metrics[i].value, one[0].result.metrics[i].value,
                    i < 3 ? 1e-5 : 1e-4)
            << rank.result.metrics[i].name;
      }
    }
  }
}

// The centers of a step depend on earlier steps: all ranks have the centers of a single rank,
// however often snapshots are made.
TEST(RanksOfAJob, CentersThatStepsRead) {
  const auto job = [](const std::string& name, int64_t snapshot_interval) {
    JobConfig job = RankJob(name);
    const std::string mean = "layer { mean { input: \"ce\"";
    job.model_text.replace(job.model_text.find(mean), mean.size(), R"(
layer { parameter { shape: [10, 16] output: "centers" } }
layer { parameter { shape: [1] output: "rate" } }
layer { op { center_loss { X: "h" Label: "label" Centers: "centers" CenterUpdateRate: "rate"
                           SampleCenterDiff: "diff" Loss: "cl" CentersOut: "centers"
                           cluster_num: 10 need_update: true } } }
layer { elementwise_add { x: "ce" y: "cl" output: "both" } }
layer { mean { input: "both")");
    job.snapshot_interval = snapshot_interval;
    return job;
  };
  const auto one = RunOn(1, job("centers_one", 0));
  ASSERT_EQ(one[0].error, "");
  for (const int64_t snapshot_interval : {0, 1}) {
    for (const RankResult& rank :
         RunOn(3, job("centers", snapshot_interval), {.check_parameters = 1})) {
      ASSERT_EQ(rank.error, "");
      EXPECT_LT(
          RelativeDifference(rank.result.scope.Get("centers"), one[0].result.scope.Get("centers")),
          1e-4);
    }
  }
}

// A result that a program of Paddle keeps for whoever fetches it has as many rows as the rank.
TEST(RanksOfAJob, ResultsThatAreKept) {
  JobConfig job = RankJob("kept");
  job.batch_size = 7;
  job.model_text += R"(
layer { parameter { shape: [7, 16] param { trainable: false } output: "kept" } }
layer { op { tanh { X: "h" Out: "kept" } } }
)";
  const auto ranks = RunOn(2, job, {.check_parameters = 1});
  ASSERT_EQ(ranks[0].error, "");
  for (const RankResult& rank : ranks) EXPECT_LT(rank.result.scope.Get("kept").shape()[0], 7);
}

// Ranks divide a batch. An input with a fixed number of rows is not a batch, not even if a rank has
// that number of rows.
TEST(RanksOfAJob, InputsOfAFixedNumberOfRows) {
  for (const char* rows : {"10", "20"}) {
    JobConfig job = RankJob("fixed");
    job.drop_last = true;
    for (const std::string input : {"[-1, 784", "[-1, 1"})
      job.model_text.replace(job.model_text.find(input) + 1, 2, rows);
    for (const RankResult& rank : RunOn(2, job, {.overwrite = true})) {
      EXPECT_EQ(rank.error, std::string("distribute: input 'image' is float32[") + rows +
                                ", 784], and ranks divide the batch: its first dimension must be "
                                "-1");
    }
  }
}

// For a batch of empty sequences, ranks compute what one rank computes: a loss of nan, and an
// accuracy of 0.
TEST(RanksOfAJob, ABatchWithoutElements) {
  const std::string file = testing::TempDir() + "/ranks_empty.npz";
  const Tensor at = Tensor::Of<int64_t>({7}, {0, 2, 3, 5, 5, 5, 5});
  WriteNpz({{"x", Tensor::Of<int64_t>({5, 1}, {1, 2, 3, 4, 5})},
            {"x@LOD@0", at},
            {"y", Tensor::Of<int64_t>({5, 1}, {2, 3, 4, 5, 6})},
            {"y@LOD@0", at}},
           file);
  const auto values = [&](int size) {
    JobConfig job;
    job.model_text = kWithLod;
    job.train.source = NpzOptions{.file = SequencesFile()};
    job.test.source = NpzOptions{.file = file};
    job.test_batch_size = job.batch_size = 3;
    job.metrics = {{"acc", "acc"}};
    job.training.optimizers = {SgdOptions{.learning_rate = 0.5}};
    job.max_iter = 20;
    const auto ranks = RunOn(size, job);
    EXPECT_EQ(ranks[0].error, "");
    return ranks[0].result.evaluations.at(0).values;
  };
  const std::vector<NamedValue> one = values(1), three = values(3);
  EXPECT_TRUE(std::isnan(one.at(0).value));  // the mean of nothing
  EXPECT_TRUE(std::isnan(three.at(0).value));
  EXPECT_TRUE(std::isfinite(one.at(1).value));
  EXPECT_NEAR(three.at(1).value, one.at(1).value, 1e-6);
}

// Each says which rank it is.
TEST(RanksOfAJob, PrintsOfTheModel) {
  JobConfig job = RankJob("prints");
  job.model_text += R"(
layer { op { print { In: "loss" Out: "p" message: "here" print_phase: "FORWARD" } } }
)";
  job.test.source = std::monostate();
  job.max_iter = 1;
  std::vector<std::string> lines;
  std::mutex mutex;
  LogSink before = SetLogSink([&](MessageLevel, const std::string& line) {
    const std::lock_guard lock(mutex);
    if (line.find("here ") != line.npos) lines.push_back(line.substr(0, line.find(" loss")));
  });
  const auto ranks = RunOn(2, job);
  SetLogSink(std::move(before));
  EXPECT_EQ(ranks[0].error, "");
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"rank 0: here", "rank 1: here"}));
}

// A row that cannot be fed is named as the data has it, whichever rank gets it where in a batch.
TEST(RanksOfAJob, ARowThatCannotBeFed) {
  std::vector<float> x(12, 1), y(12, 1);
  y[5] = 0.5f;
  const std::string file = testing::TempDir() + "/ranks_rows.npz";
  WriteNpz({{"image", Tensor::Of<float>({12, 1}, x)}, {"label", Tensor::Of<float>({12, 1}, y)}},
           file);
  JobConfig job = RankJob("rows");
  job.model_text.replace(job.model_text.find("784"), 3, "1");
  job.train.source = NpzOptions{.file = file};
  job.test.source = std::monostate();
  job.batch_size = 12;
  for (const int size : {1, 2, 3}) {
    const std::string error = RunOn(size, job, {.overwrite = true})[0].error;
    EXPECT_NE(error.find("row 5 of npz 'ranks_rows.npz', column 'label': model input 'label' is "
                         "int64, and its column holds 0.5"),
              std::string::npos)
        << error;
  }
}

}  // namespace coracle::ranks_test
