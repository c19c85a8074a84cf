// A job on several ranks, here threads: what it learns, shows and saves is what one rank does.

#include <coracle/communication/communicator.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/distribute/rank_run.h>
#include <coracle/train/run/snapshot.h>
#include <coracle/train/run/trainer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <thread>

#include "rank_jobs.h"
#include "small_job.h"

namespace coracle::ranks_test {

namespace fs = std::filesystem;

// The small job without dropout, whose draws are each rank's own, in float64.
JobConfig RankJob(const std::string& name) {
  JobConfig job = SmallJob();
  job.model_text = R"(
data  { name: "image" shape: [-1, 784] }
data  { name: "label" shape: [-1, 1] dtype: INT64 }
layer { fc { input: "image" size: 16 act: "tanh" output: "h" error_clip { by_value { max: 0.001 } } } }
layer { fc { input: "h" size: 10 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
layer { softmax { input: "logits" output: "prob" } }
)";
  job.metrics = {{"prob", "accuracy", MetricKind::kAccuracy, "label"}};
  job.shuffle = true;
  job.output_dir = testing::TempDir() + "/ranks_" + name;
  fs::remove_all(job.output_dir);
  return job;
}

void ExpectSameBits(const Scope& a, const Scope& b, const ProgramDesc& program) {
  for (const std::string& name : program.Parameters())
    EXPECT_TRUE(BitEqual(a.Get(name), b.Get(name))) << name;
}

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
// REDUCE of the costs: at all positions, or at those of sequences.
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

// What weighs is the number of elements, or of what a mask counts, not that of rows.
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

// debug_info tells the sizes of the whole batch's gradients, however ranks share them.
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

TEST(RanksOfAJob, RestoresTheBestOfRankZero) {
  JobConfig job = RankJob("best");
  job.best = BestConfig{.restore = true};
  job.training.optimizers = {SgdOptions{.learning_rate = 3}};
  job.test_interval = 4;
  const auto ranks = RunOn(2, job, {}, [](int rank, JobConfig& own, TrainOptions&) {
    if (rank == 1) own.output_dir += "_elsewhere";
  });
  EXPECT_EQ(ranks[0].error, "");
  EXPECT_EQ(ranks[1].error, "");
  ExpectSameBits(ranks[0].result.scope, ranks[1].result.scope, ranks[0].result.main);
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

// A job that is over and has no test data shows what its snapshot has not shown.
TEST(RanksOfAJob, LossOfAJobThatWasOver) {
  JobConfig job = RankJob("over");
  job.test.source = std::monostate();
  job.max_iter = 8;
  const double loss = RunOn(1, job)[0].result.loss;
  EXPECT_EQ(RunOn(1, job, {.resume = true})[0].result.loss, loss);
}

// Of an evaluation whose parts are uneven, and of steps.
TEST(RanksOfAJob, MetricsAreThoseOfAllRows) {
  const auto with_metrics = [](const std::string& name) {
    JobConfig job = RankJob(name);
    job.model_text.replace(job.model_text.find("size: 10"), 8, "size: 2");
    job.train.source = DigitsOptions{.count = 150, .classes = {3, 8}};
    job.test.source = DigitsOptions{.count = 70, .classes = {3, 8}};
    job.metrics.push_back({"loss", "perplexity", MetricKind::kPerplexity});
    job.metrics.push_back({"prob", "auc", MetricKind::kAuc, "label"});
    job.epochs = 1;
    return job;
  };
  const auto one = RunOn(1, with_metrics("one_metrics"));
  ASSERT_EQ(one[0].error, "");
  ASSERT_EQ(one[0].result.metrics.size(), 3u);
  for (const int size : {2, 3, 4}) {
    for (const RankResult& rank : RunOn(size, with_metrics("metrics"))) {
      ASSERT_EQ(rank.error, "");
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(rank.result.metrics[i].value, one[0].result.metrics[i].value, 1e-5)
            << rank.result.metrics[i].name;
      }
    }
  }
}

void ResumeWithTwoAndThreeRanks(bool shard_state) {
  JobConfig job = RankJob("whole");
  job.distribute.shard_state = shard_state;
  job.snapshot_interval = 5;
  const auto whole = RunOn(2, job);
  ASSERT_EQ(whole[0].error, "");

  JobConfig part = RankJob("part");
  part.distribute.shard_state = shard_state;
  part.snapshot_interval = 5;
  part.max_iter = 10;
  part.epochs = 0;
  ASSERT_EQ(RunOn(2, part)[0].error, "");
  part.max_iter = 0;
  part.epochs = job.epochs;
  const std::string copy = testing::TempDir() + "/ranks_copy";
  fs::remove_all(copy);
  fs::copy(part.output_dir, copy, fs::copy_options::recursive);
  const auto resumed = RunOn(2, part, {.resume = true});
  ASSERT_EQ(resumed[0].error, "");
  ExpectSameBits(resumed[0].result.scope, whole[0].result.scope, whole[0].result.main);
  ExpectSameBits(resumed[1].result.scope, whole[0].result.scope, whole[0].result.main);
  EXPECT_EQ(resumed[0].result.loss, whole[0].result.loss);

  part.output_dir = copy;
  const auto three = RunOn(3, part, {.resume = true});
  ASSERT_EQ(three[0].error, "");
  EXPECT_LT(Difference(three[2].result.scope, whole[0].result.scope, whole[0].result.main), 2e-5);
  // One rank reads what several wrote.
  const SavedSnapshot saved = ReadSnapshot(FindSnapshot(copy));
  EXPECT_EQ(saved.state.ranks, 3);
  EXPECT_EQ(saved.main.Root().FindVar("rank_share"), nullptr);
  for (const std::string& name : PersistableNames(saved.main)) {
    EXPECT_EQ(name.find("@SHARD"), std::string::npos);
    EXPECT_TRUE(saved.variables.Has(name)) << name;
    EXPECT_LT(RelativeDifference(saved.variables.Get(name), whole[0].result.scope.Get(name)), 1e-3)
        << name;
  }
  // A shard on each rank, and no whole state but on rank 0 at the end.
  const std::vector<std::string> names = three[2].result.scope.LocalNames();
  const bool any = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.find("@SHARD") != std::string::npos;
  });
  EXPECT_EQ(any, shard_state);
}

TEST(RanksOfAJob, ResumeToTheSameBitsAndWithAnotherNumber) { ResumeWithTwoAndThreeRanks(false); }
TEST(RanksOfAJob, ResumeWithAPartOfTheStateOnEachRank) { ResumeWithTwoAndThreeRanks(true); }

// Ranks that learn on their own are the same behind an average: what they show, save and go on from
// is the same on all, whichever step it is.
TEST(RanksOfAJob, LocalSgd) {
  JobConfig job = RankJob("local");
  job.distribute.local_sgd_steps = 3;
  job.snapshot_interval = 5;
  const TrainOptions options{.check_parameters = 2};
  const auto whole = RunOn(2, job, options);
  ASSERT_EQ(whole[0].error, "");
  ExpectSameBits(whole[1].result.scope, whole[0].result.scope, whole[0].result.main);
  EXPECT_LT(whole[0].losses.back(), whole[0].losses.front());

  JobConfig part = RankJob("local_part");
  part.distribute.local_sgd_steps = 3;
  part.snapshot_interval = 5;
  part.max_iter = 10;
  part.epochs = 0;
  ASSERT_EQ(RunOn(2, part, options)[0].error, "");
  part.max_iter = 0;
  part.epochs = job.epochs;
  const auto resumed = RunOn(2, part, {.resume = true, .check_parameters = 2});
  ASSERT_EQ(resumed[1].error, "");
  ExpectSameBits(resumed[1].result.scope, whole[0].result.scope, whole[0].result.main);
  EXPECT_EQ(ReadSnapshot(FindSnapshot(part.output_dir)).main.Root().FindVar("@LOCAL_STEPS@"),
            nullptr);

  JobConfig sharded = RankJob("local_sharded");
  sharded.distribute = {.shard_state = true, .local_sgd_steps = 3};
  const std::string error = RunOn(2, sharded)[0].error;
  EXPECT_NE(error.find("leave out shard_state and sync_batch_norm"), std::string::npos) << error;
}

TEST(RanksOfAJob, AllStopAfterTheSameStep) {
  JobConfig job = RankJob("stop");
  std::vector<int> asked(2);
  auto communicators = ThreadCommunicators(2, 60);
  std::vector<TrainResult> results(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      TrainCallbacks callbacks;
      callbacks.stop = [&, r] { return r == 1 && ++asked[r] >= 3; };
      TrainOptions options;
      options.communicator = std::move(communicators[r]);
      results[r] = RunJob(job, options, callbacks);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(results[0].stopped && results[1].stopped);
  EXPECT_EQ(results[0].steps, results[1].steps);
  EXPECT_FALSE(results[0].snapshot_path.empty());
  EXPECT_EQ(results[0].snapshot_path, results[1].snapshot_path);
}

// Digits that do not tell which they are.
class SecretDigits : public DataSource {
 public:
  SecretDigits(int64_t count, int seed, DigitSplit split)
      : digits_(MakeDigits({.count = count, .seed = static_cast<uint64_t>(seed)}, split)) {}
  const std::vector<DataColumn>& columns() const override { return digits_->columns(); }
  int64_t size() const override { return digits_->size(); }
  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    digits_->Get(rows, out);
  }
  std::string Describe() const override { return "digits"; }

 private:
  DataSourcePtr digits_;
};

TEST(RanksOfAJob, WhatMustBeTheSame) {
  const std::pair<const char*, Change> kCases[] = {
      {"data",
       [](int rank, JobConfig& job, TrainOptions&) {
         if (rank == 1) job.train.source = DigitsOptions{.count = 140};
       }},
      {"rows of the data",
       [](int rank, JobConfig& job, TrainOptions&) {
         job.train.custom = std::make_shared<SecretDigits>(150, rank, DigitSplit::kTrain);
       }},
      {"rows of the test data 'test'",
       [](int rank, JobConfig& job, TrainOptions&) {
         job.test.custom = std::make_shared<SecretDigits>(70, rank, DigitSplit::kTest);
       }},
      {"job",
       [](int rank, JobConfig& job, TrainOptions&) {
         if (rank == 1) job.text = "# other";
       }},
      {"settings",
       [](int rank, JobConfig& job, TrainOptions&) {
         if (rank == 1) job.random_seed = 9;
       }},
      {"program", [](int rank, JobConfig& job, TrainOptions&) {
         if (rank == 1) job.model_text.replace(job.model_text.find("tanh"), 4, "relu");
       }}};
  for (const auto& [what, change] : kCases) {
    const auto ranks = RunOn(2, RankJob("differs"), {}, change);
    for (const RankResult& rank : ranks) {
      EXPECT_NE(rank.error.find(std::string("differ in the ") + what), std::string::npos)
          << rank.error;
    }
  }
  JobConfig job = RankJob("few");
  job.batch_size = 1;
  EXPECT_NE(RunOn(2, job)[0].error.find("a batch of 1 rows for 2 ranks"), std::string::npos);
}

// A rank whose parameters are not the others' is told by the first comparison.
TEST(RanksOfAJob, AParameterThatDiffers) {
  JobConfig job = RankJob("parameters");
  const std::string weights = testing::TempDir() + "/ranks_other.npz";
  WriteNpz({{"fc_0.b_0", Tensor::Full<float>({16}, 0.5f)}}, weights);
  const auto ranks = RunOn(2, job, {}, [&](int rank, JobConfig& own, TrainOptions&) {
    if (rank == 1) own.weights = {{.file = weights}};
  });
  EXPECT_NE(ranks[0].error.find("after step 0 the parameter 'fc_0.b_0' of rank 1 ("),
            std::string::npos)
      << ranks[0].error;
  EXPECT_NE(ranks[0].error.find(") is not that of rank 0 ("), std::string::npos) << ranks[0].error;
}

// A network that loses a bit: of the exchanges of gradients the one with the number `at`, from 0,
// gives a first element that is not the other ranks'.
class FaultyCommunicator : public Communicator {
 public:
  FaultyCommunicator(std::shared_ptr<Communicator> to, int at) : to_(std::move(to)), at_(at) {}
  int rank() const override { return to_->rank(); }
  int size() const override { return to_->size(); }
  std::unique_ptr<PendingExchange> Start(const Exchange& exchange) override {
    std::unique_ptr<PendingExchange> pending = to_->Start(exchange);
    if (exchange.name.find("@GRAD") == std::string::npos || seen_++ != at_) return pending;
    return std::make_unique<Fault>(std::move(pending), static_cast<float*>(exchange.out));
  }

 private:
  struct Fault : PendingExchange {
    Fault(std::unique_ptr<PendingExchange> of, float* first) : of(std::move(of)), first(first) {}
    void Wait() override {
      of->Wait();
      *first += 1;
    }
    std::unique_ptr<PendingExchange> of;
    float* first;
  };
  std::shared_ptr<Communicator> to_;
  int at_, seen_ = 0;
};

// All gradients of this job are exchanged at once, so that the exchange 4 is that of step 5; the
// comparison after step 6 finds it.
TEST(RanksOfAJob, AParameterThatAFaultChangesInMidRun) {
  const JobConfig job = RankJob("fault");
  const TrainOptions every{.check_parameters = 3};
  const auto ranks = RunOn(2, job, every, [&](int rank, JobConfig&, TrainOptions& own) {
    if (rank == 1) own.communicator = std::make_shared<FaultyCommunicator>(own.communicator, 4);
  });
  EXPECT_EQ(ranks[0].steps_told, 5);
  EXPECT_NE(ranks[0].error.find("after step 6 the parameter '"), std::string::npos)
      << ranks[0].error;
  EXPECT_NE(ranks[0].error.find("of rank 1 ("), std::string::npos) << ranks[0].error;
  EXPECT_EQ(RunOn(2, RankJob("fault"), every)[0].error, "");
}

// What is drawn and not trained: all ranks have that of rank 0, which is that of a rank alone. A
// resumed run has it, too, with any number of ranks.
TEST(RanksOfAJob, FrozenParametersAreOfRankZero) {
  for (const int64_t local_sgd_steps : {0, 1}) {
    SCOPED_TRACE(local_sgd_steps);
    const auto job = [&](const std::string& name) {
      JobConfig job = RankJob(name);
      const size_t clip = job.model_text.find("error_clip");
      job.model_text.erase(clip, job.model_text.find("\n", clip) - 4 - clip);
      job.freeze = {"fc_0.w_0"};
      job.distribute.local_sgd_steps = local_sgd_steps;
      job.max_iter = 6;
      job.epochs = 0;
      job.snapshot_interval = 3;
      return job;
    };
    const auto expect_same = [](const RankResult& rank, const RankResult& one) {
      ASSERT_EQ(rank.error, "");
      EXPECT_LT(Difference(rank.result.scope, one.result.scope, one.result.main), 2e-5);
      EXPECT_TRUE(BitEqual(rank.result.scope.Get("fc_0.w_0"), one.result.scope.Get("fc_0.w_0")));
    };
    const auto one = RunOn(1, job("frozen_one"));
    ASSERT_EQ(one[0].error, "");
    ASSERT_FALSE(one[0].result.main.Root().FindVar("fc_0.w_0")->training().trainable);
    for (const RankResult& rank : RunOn(3, job("frozen"), {.check_parameters = 1}))
      expect_same(rank, one[0]);
    JobConfig part = job("frozen_part");
    part.max_iter = 3;
    ASSERT_EQ(RunOn(3, part)[0].error, "");
    part.max_iter = 6;
    for (const RankResult& rank : RunOn(2, part, {.resume = true, .check_parameters = 1}))
      expect_same(rank, one[0]);
  }
}

TEST(RanksOfAJob, AFrozenParameterThatDiffers) {
  JobConfig job = RankJob("frozen_other");
  job.freeze = {"fc_0.w_0"};
  const std::string weights = testing::TempDir() + "/ranks_frozen.npz";
  WriteNpz({{"fc_0.w_0", Tensor::Full<float>({784, 16}, 0.5f)}}, weights);
  const auto ranks = RunOn(2, job, {}, [&](int rank, JobConfig& own, TrainOptions&) {
    if (rank == 1) own.weights = {{.file = weights}};
  });
  EXPECT_NE(ranks[0].error.find("after step 0 the parameter 'fc_0.w_0' of rank 1 ("),
            std::string::npos)
      << ranks[0].error;
}

// The centers of a step depend on those before it: all ranks have those of one rank, however often
// snapshots are made.
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
