#pragma once
// `coracle train` and `coracle test` but for their flags: run, and tell a person what happens.

#include <coracle/train/trainer.h>

#include <ostream>
#include <string>

namespace coracle {

// Runs a job with progress on `out`; signals do what the job says (Ctrl-C and SIGTERM stop with a
// snapshot, SIGHUP takes one). The last line
// is "final: loss=... NAME=..." when the job came to its end, else "stopped: step=...
// snapshot=...". Returns whether it came to its end.
bool TrainAndReport(const JobConfig& job, const TrainOptions& options, std::ostream& out,
                    bool terminal, int width = 80);

// Evaluates a saved model on the test sets of a job, or on that of options.test_set alone. Prints
// "test SET: NAME=..." for each set but the first, and last "test: NAME=..." for that (or for the
// one that was chosen).
void TestAndReport(const std::string& model, const JobConfig& job, const EvaluateOptions& options,
                   std::ostream& out);

}  // namespace coracle
