#pragma once
// The programs of a job as one rank of several runs them.

#include <coracle/framework/op/op_registry.h>
#include <coracle/train/run/programs.h>

#include <string>
#include <vector>

namespace coracle {

// By the job's `distribute`. Appends lines for what is not as on one rank. Throws kInvalidArgument
// for what does not go together.
RankPrograms MakeRankPrograms(const JobConfig& config, const Programs& programs, int nranks,
                              const OpRegistry& ops, std::vector<std::string>* warnings);

}  // namespace coracle
