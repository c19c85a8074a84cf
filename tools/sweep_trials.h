#pragma once
// The trials of `coracle sweep`: training runs in directories OUT/trial_001, OUT/trial_002, ...

#include <coracle/tools/sweep_space.h>
#include <coracle/train/job/job.h>
#include <coracle/train/log/log_records.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::tools {

struct SweepOptions {
  std::string job = {};        // its file
  std::string job_text = {};   // without the settings
  std::string directory = {};  // OUT
  std::vector<TrialSettings> trials = {};
  std::vector<std::string> words = {};  // further words of each `coracle train`
  int jobs = 1;                         // trials at the same time
  int32_t halving = 0;                  // see RunTrials; 0: every trial runs to its end
  std::string metric = {};              // "test/loss"
  bool maximize = false;
  bool best = false;  // compares the best evaluations of the runs, not the last ones
};

struct Trial {
  size_t number = 0;  // from 1
  TrialSettings settings = {};
  std::string directory = {};
  RunSummary summary = {};           // of its log
  std::string error = {};            // why it has no value, in one line; "" if that is not known
  std::optional<double> value = {};  // of the metric; none without one
};

// Writes OUT/sweep.json, or checks that it is of the same sweep: it must have the same text of the
// job, and the trials that it lists must be the first of these. The errors in it are kept. Throws
// kInvalidArgument if it is not, kDataLoss for a damaged one.
void OpenSweep(const SweepOptions& options, bool overwrite);

// Runs the trials that are not complete: those that have snapshots continue. A failed trial does
// not end the sweep. Throws Error when a signal stopped a trial.
//
// With halving N, trials first get a part of the job's steps (or epochs). The best of N of them,
// always at least one, goes on with N times as many, until the last round has the whole number
// (Jamieson and Talwalkar: "Non-stochastic best arm identification and hyperparameter
// optimization", AISTATS 2016). The list then has all trials.
std::vector<Trial> RunTrials(const SweepOptions& options, const JobConfig& job);

// Sorts trials: the best value first, then trials without a value.
void SortTrials(bool maximize, std::vector<Trial>* trials);
std::string TrialTable(const std::vector<Trial>& trials, const std::string& metric);

}  // namespace coracle::tools
