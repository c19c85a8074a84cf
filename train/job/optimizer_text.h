#pragma once
// Reads the optimizers of a job text: kinds with their fields, clips, regularizers, schedules.

#include <coracle/train/job/job.h>
#include <coracle/train/job/job_node.h>

namespace coracle::inline internal {

// The fields of `optimizer` other than its kinds.
Fields<OptimizerConfig> OptimizerConfigFields();

// Reads the optimizers of a job. Checks everything that does not depend on the model. Errors give
// the place in the text.
void ReadOptimizers(const JobNode& job, TrainingConfig* config);

}  // namespace coracle::inline internal
