#pragma once
// Checks the names of variables in a job.

#include <coracle/train/job/job.h>
#include <coracle/train/run/programs.h>

namespace coracle::inline internal {

// Throws Error with the place in the job for a name that its programs do not have.
void CheckNames(const JobConfig& config, const Programs& programs);

}  // namespace coracle::inline internal
