#pragma once
// Snapshots: a directory with everything that a training run needs to continue with the same bits:
//
//  main.pb, startup.pb  the programs
//  state.pdiparams      every persistable variable: parameters, optimizer state, loss scale,
//                       schedule, averages
//  progress.npz         sums of metrics since they were last displayed
//  carried.npz          if states are carried from batch to batch
//  job.pbtxt            the job text
//  manifest.json        the variables of state.pdiparams, the progress of the run, and the size and
//                       CRC-32C of each file and of itself
//
// A snapshot is written completely or not at all.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/report/report.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Counts steps whose loss was nan or infinite.
struct NonFiniteCounts {
  int64_t steps = 0;
  int64_t first = 0;     // the first of them; 0 if there is none
  int64_t in_a_row = 0;  // up to now
};

struct TrainSnapshot {
  std::string job;           // its name
  int64_t step = 0;          // steps done
  int64_t epoch = 0;         // the epoch of the next step
  int64_t position = 0;      // number of the next batch, counted over all epochs
  uint64_t random_step = 0;  // the step number for random ops (PreparedProgram::step)
  // These must be the same for the run to continue as if it had never stopped.
  uint64_t seed = 0;
  std::string data;               // DataSource::Describe
  uint64_t data_fingerprint = 0;  // FingerprintOf; 0: unknown
  int64_t rows = 0;
  int64_t batch_size = 0;
  bool shuffle = false;
  bool drop_last = false;
  // These should be the same for bit-identical results.
  int threads = 0;
  int ranks = 1;
  std::string instructions;  // "avx512", "avx2", ...
  // The sums of loss and metrics since they were last displayed.
  NamedTensors progress;
  std::vector<EvaluationRecord> evaluations;  // the last of each test set
  BestRecord best;
  NonFiniteCounts non_finite;
  // The states that the last batch passes to the next, by the names to which they are fed.
  NamedTensors carried;
  // With several ranks: the running statistics of each rank, named "NAME@RANK". (The variables of
  // the snapshot are their means.)
  NamedTensors of_ranks;
};

// A snapshot read from its files.
struct SavedSnapshot {
  std::string path;
  TrainSnapshot state;
  ProgramDesc main, startup;
  Scope variables;  // the persistable variables of main
  std::string job_text;
};

// The widest vector instructions that kernels may use on this machine.
std::string InstructionSet();

// Writes DIRECTORY/step_N, and its name to DIRECTORY/LATEST (and to BEST if `best`). Then removes
// all snapshots but the newest `keep` (0: keeps all) and the one in BEST. Returns the snapshot's
// path. An error (a full disk) leaves existing snapshots unchanged.
std::string WriteSnapshot(const std::string& directory, const TrainSnapshot& snapshot,
                          const ProgramDesc& main, const ProgramDesc& startup, const Scope& scope,
                          const std::string& job_text, int64_t keep, bool best = false);

// Finds the newest snapshot of a directory (or of its subdirectory "snapshots", as in a run's
// output), or `path` itself if it is a snapshot. Returns "" if there is none.
std::string FindSnapshot(const std::string& path);

// The paths of all snapshots in a directory, oldest first.
std::vector<std::string> ListSnapshots(const std::string& directory);

// Removes all snapshots of a directory, and LATEST and BEST. Throws kIo if a file cannot
// be removed.
void RemoveSnapshots(const std::string& directory);

// The snapshot named by BEST in a directory; "" if there is none.
std::string BestSnapshot(const std::string& directory);
// Sets BEST to the snapshot of this step and copies the snapshot if only the directory `from` has
// it. If neither directory has it, or `from` is "", removes BEST and returns false.
bool SetBest(const std::string& directory, const std::string& from, int64_t step);

// Reads a snapshot and checks every file. Throws kDataLoss for a damaged snapshot, with the name of
// the file, and kUnimplemented for one of another version.
SavedSnapshot ReadSnapshot(const std::string& path);

// The differences that keep a run like `now`, with these programs, from continuing the run of
// `then`: "its batch_size is 20, the job's is 21", ... Logs a warning for another number of threads
// or instruction set.
std::vector<std::string> Mismatches(const SavedSnapshot& then, const TrainSnapshot& now,
                                    const ProgramDesc& main, const ProgramDesc& startup);

// The output of `coracle snapshot`: for one snapshot, its state and the norm of every variable; for
// two snapshots, their differences with the norms of the differences.
std::string DescribeSnapshot(const SavedSnapshot& snapshot);
std::string CompareSnapshots(const SavedSnapshot& a, const SavedSnapshot& b);

}  // namespace coracle::inline internal
