#pragma once
// Parts of a job text that have files of their own.

#include <coracle/proto/job.pb.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_node.h>

#include <string>

namespace coracle {

// `train`, `test` or a test set's data; `parent` is its field.
DataConfig ToData(const proto::DataConfig& data, const JobNode& at, const std::string& parent);

// What the loop does beside its steps: test sets, stages, what is watched, signals,
// limits, weights, logs.
void ReadSolver(const proto::JobConfig& job, const JobNode& at, JobConfig* config);

// `mixed_precision`. Throws with the place of a field that is out of range, or contradicts another.
PrecisionConfig ToPrecision(const proto::MixedPrecisionConfig& precision, const JobNode& at);

}  // namespace coracle
