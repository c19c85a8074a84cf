#pragma once
// Starts a run: from the startup program and given weights, or from a snapshot.

#include <coracle/train/run/prepare.h>
#include <coracle/train/run/snapshot/train_state.h>

namespace coracle::inline internal {

// Makes all persistable variables of the job. If options.resume finds a snapshot, restores the rest
// of the state too. Then reports the start and writes the programs. Throws Error for weights that
// do not fit, and for a snapshot that is damaged, missing, or of another run (unless
// options.override_mismatch). All ranks must call it.
TrainState StartOrResume(const JobConfig& config, const TrainOptions& options, PreparedJob& job);

}  // namespace coracle::inline internal
