#pragma once
// Builds the programs that one rank of several runs.

#include <coracle/framework/op/op_registry.h>
#include <coracle/train/run/programs.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// Changes the programs according to the job's `distribute`. Appends a warning for each difference
// from a run on one rank. Throws kInvalidArgument for settings that cannot be combined.
RankPrograms MakeRankPrograms(const JobConfig& config, const Programs& programs, int nranks,
                              const OpRegistry& ops, std::vector<std::string>* warnings);

}  // namespace coracle::inline internal
