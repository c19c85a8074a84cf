#pragma once
// Parts of a job text that have their own files.

#include <coracle/proto/job.pb.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_node.h>

#include <string>

namespace coracle {

// Reads the data of `train`, `test` or a test set. `parent` is the name of its field.
DataConfig ToData(const proto::DataConfig& data, const JobNode& at, const std::string& parent);

// Reads the settings of the training loop other than its steps: test sets, stages, watched values,
// signals, limits, weights and logs.
void ReadSolver(const proto::JobConfig& job, const JobNode& at, JobConfig* config);

// Reads `mixed_precision`. Throws with the place of a field that is out of range or
// contradicts another.
PrecisionConfig ToPrecision(const proto::MixedPrecisionConfig& precision, const JobNode& at);

}  // namespace coracle
