#pragma once
// What the outputs of a job's model mean.

#include <coracle/train/job/preprocess.h>
#include <coracle/train/run/programs.h>

#include <string>

namespace coracle::inline internal {

// Finds the meaning of a deployed output from the classes and the label of the job's data, and from
// the way the model computes its loss.
OutputMeaning MeaningOf(const std::string& output, const JobConfig& config,
                        const Programs& programs, const DataSource& data, const Scope& scope);

}  // namespace coracle::inline internal
