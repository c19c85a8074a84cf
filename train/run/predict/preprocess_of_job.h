#pragma once
// Describes the preprocessing of a job's data, for the model that the job saves.

#include <coracle/train/job/preprocess.h>
#include <coracle/train/run/programs.h>

#include <optional>

namespace coracle::inline internal {

// nullopt if the inputs of the deployed model are not made of cells, pictures, texts or arrays: for
// data of a program, and labels. `data` is the job's training data, and `scope` has the
// parameters of the model.
std::optional<PreprocessConfig> PreprocessOf(const JobConfig& config, const Programs& programs,
                                             const DataSource& data, const Scope& scope);

}  // namespace coracle::inline internal
