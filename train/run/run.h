#pragma once
// `coracle train` and `coracle test` but for their flags: run, and tell a person what happens.

#include <coracle/train/run/trainer.h>

#include <ostream>
#include <string>

namespace coracle {

// How a run ended, as the exit code of `coracle train`.
inline constexpr int kRunDone = 0;       // it came to its end, or max_seconds did
inline constexpr int kRunNotFinite = 3;  // done, but a loss or a final value was a nan or infinite
inline constexpr int kRunSignalled = 128;  // plus the number of the signal that stopped it

// Runs a job with progress on `out`; signals do what the job says (Ctrl-C and SIGTERM stop with a
// snapshot, SIGHUP takes one). The last line is "final: loss=... NAME=..." when the job came to its
// end, else "time is up: ..." or "interrupted by SIGINT: ...", with "step=... snapshot=...". A
// final line tells how many steps had a loss that was not finite. Returns one of the codes above;
// what RunJob throws passes through.
//
// Of several ranks (options.communicator) only rank 0 prints.
int TrainAndReport(const JobConfig& job, const TrainOptions& options, std::ostream& out,
                   bool terminal, int width = 80);

// The same with threads of this process as the ranks 1 to ranks - 1, which wait for each other for
// so many seconds; 0: for ever. Throws the error of the rank that was the first to fail.
int TrainOnThreads(int ranks, const JobConfig& job, const TrainOptions& options, std::ostream& out,
                   bool terminal, int width = 80, double exchange_timeout = 0);

// Evaluates a saved model on the test sets of a job, or on that of options.test_set alone. Prints
// "test SET: NAME=..." for each set but the first, and last "test: NAME=..." for that (or for the
// one that was chosen). Returns kRunDone or kRunNotFinite.
int TestAndReport(const std::string& model, const JobConfig& job, const EvaluateOptions& options,
                  std::ostream& out);

}  // namespace coracle
