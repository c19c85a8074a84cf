#pragma once
// Predicts the time of a job's step on many ranks, each with the job's batch_size rows.

#include <coracle/distribute/step_forecast.h>
#include <coracle/train/run/trainer.h>

#include <string>
#include <vector>

namespace coracle {

struct ForecastOptions {
  TimeOptions time = {};  // its loss and batch_size are the job's
  std::vector<int> ranks = {};
  double bucket_mb = 25;
  Network network = {};  // `work` is not read but measured
};

// Returns one line for each number of ranks: the time of a step, the efficiency (the time on one
// rank divided by this time), the additional time of the slowest rank compared with the average,
// the time of the exchanges, the part of it for which ops wait, the rows per second of all ranks,
// and the best of the bucket sizes that were tried.
//
// The step is measured as rank 0 would run it in the job, with its data, fetches and metrics;
// exchanges are recorded but take no time. It is measured once, or for each number of ranks if it
// depends on that number (sparse gradients, or the optimizer's state divided among the ranks). The
// cost of an exchange for the rank itself, `work` of the network, is measured with memory and a
// thread of this machine.
//
// If the data has fewer rows than a batch of all ranks, its rows are repeated. Throws what training
// the job throws (but the job may have no end), and kInvalidArgument if the batch of all ranks has
// more rows than the limit of a job's batch.
std::string ForecastJob(const JobConfig& job, const ForecastOptions& options);

}  // namespace coracle
