#pragma once
// Whether the ranks of a job do the same and learn the same.

#include <coracle/distribute/ranks.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/trainer.h>

namespace coracle {

// Throws kInvalidArgument, with the place in the job, where a rank would have no row of a batch.
void RequireRowForEachRank(const JobConfig& config, int ranks);

// That all ranks are about to do the same, and that each has a row of a batch. All of several ranks
// call it; it throws what Ranks::RequireSame throws, and kInvalidArgument for too few rows.
void RequireSameJob(const Ranks& ranks, const JobConfig& config, const TrainOptions& options);

// Compares the parameters of all ranks, which call it together, after a step; programs.of_rank is
// set. Throws kInvalidArgument that names the first of them in which a rank differs from rank 0.
void RequireSameParameters(const Ranks& ranks, const Programs& programs, const Scope& scope,
                           int64_t step);

}  // namespace coracle
