#pragma once
// Starts a run: from the startup program and given weights, or from a snapshot.

#include <coracle/train/run/non_finite.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/train_step.h>
#include <coracle/train/run/watch.h>

#include <string>
#include <vector>

namespace coracle {

struct Start {
  int64_t step = 0;  // steps done before
  std::string resumed_from;
  std::string note;                   // a message for the user, or ""
  std::vector<std::string> messages;  // what was loaded, what an override ignored
};

// The state that a snapshot restores in addition to the step.
struct ResumedState {
  const Ranks& ranks;
  Scope& scope;
  TrainStep& step;
  Watch& watch;
  NonFiniteLosses& non_finite;
  std::vector<EvaluationRecord>& evaluations;
};

// Makes all persistable variables of the job. If options.resume finds a snapshot, restores the rest
// of `state` too. Throws Error for weights that do not fit, and for a snapshot that is damaged,
// missing, or of another run (unless options.override_mismatch).
Start StartRun(const JobConfig& config, const TrainOptions& options, const Programs& programs,
               ResumedState state);

}  // namespace coracle
