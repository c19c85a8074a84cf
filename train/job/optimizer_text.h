#pragma once
// Reads the part of a job text that describes how parameters are updated.

#include <coracle/proto/job.pb.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_node.h>

namespace coracle {

// Checks everything that does not depend on the model. Errors give the place in the text.
TrainingConfig ToTraining(const proto::JobConfig& job, const JobNode& at);

}  // namespace coracle
