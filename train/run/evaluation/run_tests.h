#pragma once
// Evaluates the test sets of a job during its training.

#include <coracle/train/run/prepare.h>
#include <coracle/train/run/snapshot/train_state.h>

namespace coracle::inline internal {

// Whether an evaluation is due after the last step.
bool EvaluationDue(const JobConfig& config, const PreparedJob& job, const TrainState& state);

// Whether each test set was evaluated after the last step.
bool AllEvaluated(const PreparedJob& job, const TrainState& state);

// Evaluates all test sets, with averaged parameters if the job has them, and reports and remembers
// the results. Returns whether the watched value is the best so far. Sets result.stopped if a
// request to stop ended the evaluation. All ranks must call it.
bool RunTests(const JobConfig& config, PreparedJob& job, TrainState& state);

// RunTests; then schedules that watch evaluations may lower their rates.
bool EvaluateAll(const JobConfig& config, PreparedJob& job, TrainState& state);

}  // namespace coracle::inline internal
