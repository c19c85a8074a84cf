// A training job whose system calls fail: it ends in an Error, or goes on without what could not be
// written. The next run resumes it, and ends with the same bits as an undisturbed run.

#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/faults/system_calls.h>
#include <coracle/test/test_data.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/trainer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace coracle::job_faults_test {

namespace fs = std::filesystem;
using faults::Call;
using faults::Fault;
using faults::ScopedFault;

// Snapshots, the best of them, both logs, an average, and dropout.
JobConfig JobIn(const std::string& directory) {
  JobConfig job;
  job.model_text = R"(
data  { name: "image" shape: [-1, 784] }
data  { name: "label" shape: [-1, 1] dtype: INT64 }
layer { fc { input: "image" size: 8 act: "relu" output: "h" } }
layer { dropout { input: "h" dropout_prob: 0.2 output: "d" } }
layer { fc { input: "d" size: 10 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
)";
  job.train.source = DigitsOptions{.count = 40};
  job.test.source = DigitsOptions{.count = 20};
  job.training.optimizers = {AdamOptions{}};
  job.training.average = ExponentialMovingAverageOptions{.decay = 0.9};
  job.best = BestConfig{};
  job.batch_size = 10;
  job.max_iter = 6;
  job.snapshot_interval = 2;
  job.test_interval = 3;
  job.display = 1;
  job.log.tensorboard = true;
  job.prefetch = false;  // so that the calls come in the same order in each run
  job.output_dir = directory + "/run";
  return job;
}

TrainOptions Resuming() {
  TrainOptions options;
  options.resume = true;
  return options;
}

// The values of all variables after a run.
std::string EndOf(const TrainResult& result) {
  std::string bytes;
  for (const std::string& name : PersistableNames(result.main))
    AppendTensor(result.scope.Get(name), &bytes);
  return bytes;
}

void ExpectNoTemporaries(const std::string& directory, const std::string& which) {
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    EXPECT_EQ(entry.path().string().find(".coracle-"), std::string::npos)
        << which << " leaves " << entry.path();
  }
}

// Every line of the log is whole.
void ExpectWholeLines(const std::string& path, const std::string& which) {
  if (!FileExists(path)) return;
  std::istringstream in(ReadFile(path));
  for (std::string line; std::getline(in, line);) {
    EXPECT_TRUE(line.empty() || (line.front() == '{' && line.back() == '}'))
        << which << ": " << line;
  }
}

class JobFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    const TemporaryDirectory directory;
    const ScopedFault counting;
    end_ = EndOf(RunJob(JobIn(directory.path())));
    for (const Call call : kCalls) calls_.push_back(ScopedFault::Calls(call));
    SetLogSink([](MessageLevel, const std::string&) {});
  }
  void TearDown() override { SetLogSink({}); }

  void Check(const Fault& fault) {
    const TemporaryDirectory directory;
    const JobConfig job = JobIn(directory.path());
    const std::string which = std::string(ToString(fault.call)) + " " + std::to_string(fault.at) +
                              " (" + std::strerror(fault.error) + ")";
    std::string message;
    try {
      const ScopedFault scoped(fault);
      EXPECT_EQ(EndOf(RunJob(job, Resuming())), end_) << which;
    } catch (const Error& error) {
      message = error.message();
    }
    failed_ += !message.empty();
    if (fault.error == EINTR || fault.error == 0) {
      EXPECT_EQ(message, "") << which;
    } else if (!message.empty()) {
      EXPECT_NE(message.find(std::strerror(fault.error)), std::string::npos) << which << message;
    }
    ExpectNoTemporaries(directory.path(), which);
    ExpectWholeLines(job.output_dir + "/log.jsonl", which);
    try {
      EXPECT_EQ(EndOf(RunJob(job, Resuming())), end_) << which << ", then resumed";
    } catch (const Error& error) {
      ADD_FAILURE() << which << " cannot be resumed: " << error.what();
    }
  }

  // About `most` calls of that kind, over the whole run.
  void CheckSome(Call call, const std::vector<int>& errors, int most) {
    const auto index = std::find(std::begin(kCalls), std::end(kCalls), call) - std::begin(kCalls);
    const int count = calls_[static_cast<size_t>(index)];
    ASSERT_GT(count, 0) << ToString(call);
    const int step = std::max(1, count / most);
    for (int at = 1, turn = 0; at <= count; at += step, ++turn)
      Check({call, at, errors[static_cast<size_t>(turn) % errors.size()]});
  }

  static constexpr Call kCalls[] = {Call::kOpen, Call::kWrite,  Call::kRead,
                                    Call::kSync, Call::kRename, Call::kMakeDirectory};
  std::string end_;
  std::vector<int> calls_;
  int failed_ = 0;
};

TEST_F(JobFaults, OfWrites) {
  CheckSome(Call::kWrite, {ENOSPC, EIO, EINTR, 0}, 40);
  EXPECT_GT(failed_, 0);
}
TEST_F(JobFaults, OfOpens) {
  CheckSome(Call::kOpen, {EACCES, EMFILE, EINTR}, 40);
  EXPECT_GT(failed_, 0);
}
TEST_F(JobFaults, OfSyncs) {
  CheckSome(Call::kSync, {EIO, ENOSPC, EINTR}, 30);
  EXPECT_GT(failed_, 0);
}
TEST_F(JobFaults, OfRenames) {
  CheckSome(Call::kRename, {EACCES, EIO, ENOSPC}, 30);
  EXPECT_GT(failed_, 0);
}
TEST_F(JobFaults, OfReads) { CheckSome(Call::kRead, {EIO, EINTR, 0}, 30); }
TEST_F(JobFaults, OfDirectories) { CheckSome(Call::kMakeDirectory, {EROFS, ENOSPC}, 10); }

// From some moment on nothing can be written: the disk is full.
TEST_F(JobFaults, OfAFullDisk) {
  const int writes = calls_[1];
  for (int at = 1; at <= writes; at += std::max(1, writes / 20))
    Check({Call::kWrite, at, ENOSPC, 1'000'000});
  EXPECT_GT(failed_, 0);
}

// The directory of the run is removed while it trains.
TEST_F(JobFaults, OfAVanishedDirectory) {
  const TemporaryDirectory directory;
  const JobConfig job = JobIn(directory.path());
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    if (report.step == 3) fs::remove_all(job.output_dir);
  };
  try {
    EXPECT_EQ(EndOf(RunJob(job, {}, callbacks)), end_);
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(job.output_dir), std::string::npos) << error.what();
  }
  EXPECT_EQ(EndOf(RunJob(job, Resuming())), end_);
  ExpectNoTemporaries(directory.path(), "a vanished directory");
}

}  // namespace coracle::job_faults_test
