#pragma once
// The field table of a job: every field of job text with its type, default, range, doc and example,
// except the fields of optimizers and schedules (job_schema.cc).

#include <coracle/framework/ir/fields.h>
#include <coracle/train/job/job.h>

namespace coracle::inline internal {

const Fields<JobConfig>& JobFields();

}  // namespace coracle::inline internal
