#pragma once
// Checks that the ranks of a job run the same job and learn the same parameters.

#include <coracle/communication/communicator.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/trainer.h>

namespace coracle::inline internal {

// Throws kInvalidArgument with the place in the job if a rank would get no row of a batch.
void RequireRowForEachRank(const JobConfig& config, int ranks);

// Checks that all ranks run the same job and that each gets rows of a batch. All ranks must call
// it. Throws what Ranks::RequireSame throws, and kInvalidArgument for too few rows.
void RequireSameJob(const Ranks& ranks, const JobConfig& config, const TrainOptions& options);

// Compares the parameters of all ranks after a step; all ranks must call it. Throws
// kInvalidArgument that names the first parameter in which a rank differs from rank 0.
void RequireSameParameters(const Ranks& ranks, const Programs& programs, const Scope& scope,
                           int64_t step);

}  // namespace coracle::inline internal
