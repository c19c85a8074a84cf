#pragma once
// The part of a job text that says how parameters are updated.

#include <coracle/proto/job.pb.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_node.h>

namespace coracle {

// Checks everything that can be told without the model; errors name the place in the text.
TrainingConfig ToTraining(const proto::JobConfig& job, const JobNode& at);

}  // namespace coracle
