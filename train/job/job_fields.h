#pragma once
// The field table of a job: every field of job text with its type, default, range, doc and example,
// except the fields of optimizers and schedules (job_schema.cc).

#include <coracle/framework/ir/fields.h>
#include <coracle/train/job/job.h>

namespace coracle::inline internal {

const Fields<JobConfig>& JobFields();

// Whether the kind compares scores with integer labels, or numbers with real labels.
bool ComparesScores(MetricKind kind);
bool ComparesNumbers(MetricKind kind);

}  // namespace coracle::inline internal
