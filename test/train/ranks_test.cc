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

struct RankResult {
  TrainResult result;
  std::string error;
  int steps_told = 0;
  std::vector<double> losses;  // of all steps
};

using Change = std::function<void(int rank, JobConfig& job, TrainOptions& options)>;

std::vector<RankResult> RunOn(int size, const JobConfig& job, const TrainOptions& options = {},
                              const Change& change = {}) {
  auto communicators = ThreadCommunicators(size, 60);
  std::vector<RankResult> results(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r,
                          end = std::shared_ptr<Communicator>(
                              std::move(communicators[static_cast<size_t>(r)]))]() mutable {
      RankResult& own = results[static_cast<size_t>(r)];
      JobConfig own_job = job;
      TrainOptions own_options = options;
      own_options.communicator = std::move(end);
      if (change) change(r, own_job, own_options);
      TrainCallbacks callbacks;
      callbacks.on_step = [&](const StepReport& report) {
        ++own.steps_told;
        own.losses.push_back(report.loss);
      };
      try {
        own.result = RunJob(own_job, own_options, callbacks);
      } catch (const Error& error) {
        own.error = error.message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

double Difference(const Scope& a, const Scope& b, const ProgramDesc& program) {
  double largest = 0;
  for (const std::string& name : program.Parameters()) {
    const Tensor &x = a.Get(name), &y = b.Get(name);
    for (int64_t i = 0; i < x.numel(); ++i)
      largest =
          std::max(largest, std::abs(static_cast<double>(x.data<float>()[i] - y.data<float>()[i])));
  }
  return largest;
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

}  // namespace coracle::ranks_test
