#pragma once
// Runs `coracle train` and `coracle test` and prints their progress; flags are parsed in tools/.

#include <coracle/train/run/saved_model.h>
#include <coracle/train/run/trainer.h>

#include <ostream>
#include <string>

namespace coracle::inline internal {

// Exit codes of `coracle train`.
inline constexpr int kRunDone = 0;         // the job was completed, or max_seconds had passed
inline constexpr int kRunNotFinite = 3;    // done, but a loss or a final value was nan or infinite
inline constexpr int kRunSignalled = 128;  // plus the number of the signal that stopped it

// Runs a job and prints its progress on `out`. Signals act as the job says (Ctrl-C and SIGTERM stop
// the run with a snapshot, SIGHUP takes one). The last line is "final: loss=... NAME=..." if the
// job was completed, else "time is up: ..." or "interrupted by SIGINT: ...", with "step=...
// snapshot=...". A line at the end gives the number of steps whose loss was not finite. Returns one
// of the codes above; rethrows what RunJob throws.
//
// With several ranks (options.communicator), only rank 0 prints.
int TrainAndReport(const JobConfig& job, const TrainOptions& options, std::ostream& out,
                   bool terminal, int width = 80);

// Like TrainAndReport, with threads of this process as ranks 1 to ranks - 1. They wait for each
// other for at most the given number of seconds; 0: without a limit. Throws the error of the rank
// that failed first.
int TrainOnThreads(int ranks, const JobConfig& job, const TrainOptions& options, std::ostream& out,
                   bool terminal, int width = 80, double exchange_timeout = 0);

// Evaluates a saved model on the test sets of a job, or only on options.test_set. Prints "test SET:
// NAME=..." for each set but the first, and at the end "test: NAME=..." for the first set (or for
// the chosen one). Returns kRunDone or kRunNotFinite.
int TestAndReport(const std::string& model, const JobConfig& job, const EvaluateOptions& options,
                  std::ostream& out);

}  // namespace coracle::inline internal
