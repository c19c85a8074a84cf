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
  Network network = {};
};

// One line for each number of ranks: the step, its share of the step of one rank (efficiency), the
// exchanges, what of them ops wait for, rows a second of all ranks, and the bucket size of those
// tried that makes the shortest step.
//
// The step is measured as rank 0 of so many ranks runs it, whose exchanges are noted and cost
// nothing: once, or for each number of ranks where it depends on it (sparse gradients, a part of
// the optimizer's state on each rank). The values are drawn; for columns with unknown dims besides
// the first that no text gives, they are the first batch of the job's data. Throws what TimeJob and
// OpenTrainData throw.
std::string ForecastJob(const JobConfig& job, const ForecastOptions& options);

}  // namespace coracle
