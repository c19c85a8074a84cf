#pragma once
// Where a run begins: the startup program and given weights, or a snapshot.

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
  std::string note;                   // what the user should know, or ""
  std::vector<std::string> messages;  // what was loaded, what an override left out
};

// What a snapshot brings back beside the step.
struct ResumedState {
  const Ranks& ranks;
  Scope& scope;
  TrainStep& step;
  Watch& watch;
  NonFiniteLosses& non_finite;
  std::vector<EvaluationRecord>& evaluations;
};

// Makes all persistable variables of the job. A snapshot, if options.resume finds one, sets the
// rest of `state` too. Throws Error for weights that do not fit and for a snapshot that is damaged,
// missing, or of another run (unless options.override_mismatch).
Start StartRun(const JobConfig& config, const TrainOptions& options, const Programs& programs,
               ResumedState state);

}  // namespace coracle
