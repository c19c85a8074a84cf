// Values that must agree on all ranks of a job, here threads, and how a rank that differs is found.

#include <coracle/communication/communicator.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/distribute/rank_run.h>
#include <coracle/test/train/rank_jobs.h>
#include <coracle/train/run/ranks/rank_variables.h>
#include <coracle/train/run/trainer.h>
#include <gtest/gtest.h>

#include <memory>

namespace coracle::ranks_agree_test {

// Digits without their identity.
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
  // For long texts the error shows the part that differs.
  const std::string same(400, '#');
  const auto ranks = RunOn(2, RankJob("long"), {}, [&](int rank, JobConfig& job, TrainOptions&) {
    job.text = same + "\nrate: 0." + std::to_string(1 + rank) + "\nmore: 1";
  });
  for (const char* part : {"...'rate: 0.1", "...'rate: 0.2"})
    EXPECT_NE(ranks[0].error.find(part), std::string::npos) << ranks[0].error;
  JobConfig job = RankJob("few");
  job.batch_size = 1;
  EXPECT_NE(RunOn(2, job)[0].error.find("a batch of 1 rows for 2 ranks"), std::string::npos);
}

// The first comparison reports a rank whose parameters differ.
TEST(RanksOfAJob, AParameterThatDiffers) {
  JobConfig job = RankJob("parameters");
  const std::string weights = testing::TempDir() + "/ranks_other.npz";
  WriteNpz({{"fc_0.b_0", Tensor::Full<float>({16}, 0.5f)}}, weights);
  const auto ranks = RunOn(2, job, {}, [&](int rank, JobConfig& own, TrainOptions&) {
    if (rank == 1) own.weights = {{.file = weights}};
  });
  EXPECT_NE(ranks[0].error.find("after step 0 the parameter 'fc_0.b_0' differs between rank 1 ("),
            std::string::npos)
      << ranks[0].error;
  EXPECT_NE(ranks[0].error.find(") and rank 0 ("), std::string::npos) << ranks[0].error;
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

// All gradients of this job are exchanged at once, so exchange 4 belongs to step 5; the comparison
// after step 6 finds it.
TEST(RanksOfAJob, AParameterThatAFaultChangesInMidRun) {
  const JobConfig job = RankJob("fault");
  const TrainOptions every{.check_parameters = 3};
  const auto ranks = RunOn(2, job, every, [&](int rank, JobConfig&, TrainOptions& own) {
    if (rank == 1) own.communicator = std::make_shared<FaultyCommunicator>(own.communicator, 4);
  });
  EXPECT_EQ(ranks[0].steps_told, 5);
  EXPECT_NE(ranks[0].error.find("after step 6 the parameter '"), std::string::npos)
      << ranks[0].error;
  EXPECT_NE(ranks[0].error.find("differs between rank 1 ("), std::string::npos) << ranks[0].error;
  EXPECT_EQ(RunOn(2, RankJob("fault"), every)[0].error, "");
}

// Variables that are drawn and not trained: all ranks have rank 0's values, which equal those of a
// single rank. This holds for a resumed run too, with any number of ranks.
TEST(RanksOfAJob, FrozenParametersAreOfRankZero) {
  const auto job = [&](const std::string& name) {
    JobConfig job = RankJob(name);
    const size_t clip = job.model_text.find("error_clip");
    job.model_text.erase(clip, job.model_text.find("\n", clip) - 4 - clip);
    job.freeze = {"fc_0.w_0"};
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

TEST(RanksOfAJob, AFrozenParameterThatDiffers) {
  JobConfig job = RankJob("frozen_other");
  job.freeze = {"fc_0.w_0"};
  const std::string weights = testing::TempDir() + "/ranks_frozen.npz";
  WriteNpz({{"fc_0.w_0", Tensor::Full<float>({784, 16}, 0.5f)}}, weights);
  const auto ranks = RunOn(2, job, {}, [&](int rank, JobConfig& own, TrainOptions&) {
    if (rank == 1) own.weights = {{.file = weights}};
  });
  EXPECT_NE(ranks[0].error.find("after step 0 the parameter 'fc_0.w_0' differs between rank 1 ("),
            std::string::npos)
      << ranks[0].error;
}

// 16-bit statistics have a mean, too.
TEST(RanksOfAJob, MeansOfHalves) {
  if (CommunicatorOfProcess()) GTEST_SKIP() << "of threads";
  std::vector<float> means(2);
  OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    RankPrograms programs;
    programs.local = {"s"};
    Scope scope;
    const auto own = static_cast<float>(1 + 2 * communicator->rank());
    scope.Set("s", Tensor::Full<float>({1}, own).Cast(DType::kBFloat16));
    RankVariables variables(Ranks(communicator), programs);
    const NamedTensors kept = variables.MakeEqual(scope);
    EXPECT_EQ(kept.at(0).second.Cast(DType::kFloat32).Item<float>(), own);
    EXPECT_EQ(scope.Get("s").dtype(), DType::kBFloat16);
    means[static_cast<size_t>(communicator->rank())] =
        scope.Get("s").Cast(DType::kFloat32).Item<float>();
  });
  EXPECT_EQ(means, (std::vector<float>{2, 2}));
}

}  // namespace coracle::ranks_agree_test
