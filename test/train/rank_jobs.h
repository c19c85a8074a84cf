#pragma once
// A small job, and jobs on several ranks, which are threads.

#include <coracle/communication/communicator.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/run/trainer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace coracle {

// The small job without dropout, whose draws are each rank's own.
inline JobConfig RankJob(const std::string& name) {
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
  std::filesystem::remove_all(job.output_dir);
  return job;
}

struct RankResult {
  TrainResult result;
  std::string error;
  int steps_told = 0;
  std::vector<double> losses;                // of all steps
  std::vector<std::vector<double>> metrics;  // of the steps that are shown
  std::vector<std::string> messages;
};

using Change = std::function<void(int rank, JobConfig& job, TrainOptions& options)>;

inline std::vector<RankResult> RunOn(int size, const JobConfig& job,
                                     const TrainOptions& options = {}, const Change& change = {}) {
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
        if (report.show) own.metrics.push_back(report.MeanMetrics());
      };
      callbacks.on_message = [&](const std::string& line) { own.messages.push_back(line); };
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

inline double Difference(const Scope& a, const Scope& b, const ProgramDesc& program) {
  double largest = 0;
  for (const std::string& name : program.Parameters()) {
    const Tensor &x = a.Get(name), &y = b.Get(name);
    for (int64_t i = 0; i < x.numel(); ++i)
      largest =
          std::max(largest, std::abs(static_cast<double>(x.data<float>()[i] - y.data<float>()[i])));
  }
  return largest;
}

inline void ExpectSameBits(const Scope& a, const Scope& b, const ProgramDesc& program) {
  for (const std::string& name : program.Parameters())
    EXPECT_TRUE(BitEqual(a.Get(name), b.Get(name))) << name;
}

}  // namespace coracle
