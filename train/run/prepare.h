#pragma once
// Prepares a run: everything that a job needs before its first step.

#include <coracle/communication/communicator.h>
#include <coracle/executor/executor.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/run/evaluation/test_sets.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/ranks/rank_variables.h>
#include <coracle/train/run/reporter.h>
#include <coracle/train/run/snapshot/directory_lock.h>
#include <coracle/train/run/train_step.h>
#include <coracle/train/run/watch.h>

#include <memory>
#include <string>
#include <vector>

namespace coracle::inline internal {

struct PreparedJob {
  Ranks ranks;
  const OpRegistry& ops;
  Executor executor;  // runs programs other than steps and tests
  std::unique_ptr<Reporter> reporter;
  // Only on rank 0: locks of the output directories, and whether the run continues in the
  // directories of the run that it resumes.
  std::vector<std::unique_ptr<DirectoryLock>> locks = {};
  bool resumes_in_place = false;
  DataSourcePtr data = {};
  Programs programs = {};
  RankVariables variables = {};
  std::unique_ptr<TrainStep> step = {};
  std::unique_ptr<TestSets> tests = {};
  Watch watch = {};     // before the first evaluation
  TrainPlan plan = {};  // of a run from the beginning
  std::vector<std::string> warnings = {};
};

// Locks the output directories, opens the data, builds the programs, and checks what can be checked
// before the first step. `config`, `options` and `callbacks` must outlive the result. All ranks
// must call it. Throws Error for a problem of the job, its model or its data, and for directories
// that hold another run's output.
PreparedJob Prepare(const JobConfig& config, const TrainOptions& options,
                    const TrainCallbacks& callbacks);

// The directory that holds a snapshot.
std::string DirectoryOfSnapshot(const std::string& snapshot);

}  // namespace coracle::inline internal
