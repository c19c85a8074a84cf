#pragma once
// What a job's step takes on many ranks, each of which has the job's batch_size rows.

#include <coracle/distribute/step_forecast.h>
#include <coracle/train/run/trainer.h>

#include <string>
#include <vector>

namespace coracle {

struct ForecastOptions {
  TimeOptions time = {};  // its loss and batch_size are the job's
  std::vector<int> ranks = {};
  double bucket_mb = 25;
  Network network = {};  // without `work`, which is measured
};

// One line for each number of ranks: the step, its share of the step of one rank (efficiency), what
// the slowest rank takes longer than a rank on average, the exchanges, what of them ops wait for,
// rows a second of all ranks, and the bucket size of those tried that makes the shortest step.
//
// The step is measured as rank 0 of so many ranks runs it in a job, with its data, what it fetches
// and its metrics; exchanges are noted and cost nothing. Once, or for each number of ranks where it
// depends on it (sparse gradients, a part of the optimizer's state on each rank). What an exchange
// costs the rank itself, `work` of the network, is measured on memory and a thread of this machine.
// Data of fewer rows than a batch of all ranks are repeated. Throws what training the job throws
// (but a job without an end has a forecast, too), and kInvalidArgument where the batch of all ranks
// would have more rows than a job's batch may.
std::string ForecastJob(const JobConfig& job, const ForecastOptions& options);

}  // namespace coracle
