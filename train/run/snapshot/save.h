#pragma once
// Saves the snapshots of a run, restores the best one, and ends the run.

#include <coracle/train/run/prepare.h>
#include <coracle/train/run/snapshot/train_state.h>

namespace coracle::inline internal {

// Writes a snapshot of the state after the last step; `best`: its evaluation is the best so far.
// Does nothing for a job without a directory of snapshots. All ranks must call it. Throws what
// NonFiniteLosses::Parameters throws, and kIo.
void SaveSnapshot(const JobConfig& config, bool best, PreparedJob& job, TrainState& state);

// Ends the run: restores the best parameters if the job says so, and, unless the run was stopped,
// writes the models. All ranks must call it.
TrainResult Finish(const JobConfig& config, const TrainOptions& options, PreparedJob& job,
                   TrainState& state);

}  // namespace coracle::inline internal
