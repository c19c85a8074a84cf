#pragma once
// What a job's step takes on many ranks, each of which has the job's batch_size rows.

#include <coracle/distribute/step_forecast.h>
#include <coracle/train/run/trainer.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

// The step on one rank, timed by its ops. Throws kInvalidArgument for a job with iter_size, for
// sparse gradients and for columns with unknown dims besides the first that no
// text gives; else what TimeJob throws.
StepTimeline MeasureTimeline(const JobConfig& job, const TimeOptions& options);

// One line for each number of ranks: the step, its share of the step of one rank (efficiency), the
// exchanges, what of them ops wait for, rows a second of all ranks, and the bucket size of those
// tried that makes the shortest step.
std::string ForecastTable(const StepTimeline& step, const std::vector<int>& ranks, double bucket_mb,
                          const Network& network, int64_t batch_size);

}  // namespace coracle
