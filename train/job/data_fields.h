#pragma once
// The field tables of a job's data.

#include <coracle/framework/ir/fields.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_node.h>

namespace coracle::inline internal {

const Fields<DataConfig>& DataFields();
Fields<TestSetConfig> TestSetFields();
Fields<BindConfig> BindFields();
Fields<CarryConfig> CarryFields();

// Gives test data with like_train the fields of `train` that the text does not give it. `root` is
// the text of the job, from which `job` was read.
void InheritTrainData(const JobNode& root, JobConfig* job);

}  // namespace coracle::inline internal
