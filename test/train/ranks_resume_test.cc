// A job on several ranks, here threads, that stops and goes on, and what it restores.

#include <coracle/communication/communicator.h>
#include <coracle/test/distribute/rank_run.h>
#include <coracle/test/train/rank_jobs.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <coracle/train/run/trainer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <thread>

namespace coracle::ranks_resume_test {

namespace fs = std::filesystem;

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

// A job that is over and has no test data shows what its snapshot has not shown.
TEST(RanksOfAJob, LossOfAJobThatWasOver) {
  JobConfig job = RankJob("over");
  job.test.source = std::monostate();
  job.max_iter = 8;
  const double loss = RunOn(1, job)[0].result.loss;
  EXPECT_EQ(RunOn(1, job, {.resume = true})[0].result.loss, loss);
}

// Running statistics of plain batch_norm go on as each rank has them, and evaluations on the way
// change nothing.
TEST(RanksOfAJob, ResumesStatisticsToTheBit) {
  const auto make = [](const std::string& name) {
    JobConfig job = RankJob(name);
    const std::string hidden = "layer { fc { input: \"h\"";
    job.model_text.replace(job.model_text.find(hidden), hidden.size(),
                           "layer { batch_norm { input: \"h\" output: \"n\" } }\n"
                           "layer { fc { input: \"n\"");
    job.epochs = 0;
    job.max_iter = 17;
    job.test_interval = 100;
    return job;
  };
  const auto whole = RunOn(2, make("statistics"));
  ASSERT_EQ(whole[0].error, "");
  JobConfig part = make("statistics_part");
  part.max_iter = 7;
  part.test_interval = 3;
  ASSERT_EQ(RunOn(2, part)[0].error, "");
  part.max_iter = 17;
  const auto resumed = RunOn(2, part, {.resume = true});
  ASSERT_EQ(resumed[0].error, "");
  int statistics = 0;
  for (const std::string& name : PersistableNames(whole[0].result.main)) {
    if (name.find("batch_norm") == std::string::npos) continue;
    ++statistics;
    EXPECT_TRUE(BitEqual(resumed[0].result.scope.Get(name), whole[0].result.scope.Get(name)))
        << name;
  }
  EXPECT_GE(statistics, 4);
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

}  // namespace coracle::ranks_resume_test
