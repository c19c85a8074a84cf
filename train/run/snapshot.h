#pragma once
// Snapshots: a directory that holds all that a training run needs to go on, bit for bit, where it
// was: main.pb and startup.pb (the programs), state.pdiparams (every persistable variable:
// parameters, optimizer state, loss scale, schedule, averages), progress.npz (sums of metrics since
// they were last shown), carried.npz where states are carried from batch to batch, job.pbtxt, and
// manifest.json, which says what is in state.pdiparams, how far the run is, and the size and
// CRC-32C of each file and of itself. Written whole or not at all.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/run/trainer.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

// Steps whose loss was a nan or infinite.
struct NonFiniteCounts {
  int64_t steps = 0;
  int64_t first = 0;     // the first of them; 0 without one
  int64_t in_a_row = 0;  // up to now
};

struct TrainSnapshot {
  std::string job;           // its name
  int64_t step = 0;          // steps done
  int64_t epoch = 0;         // that the next step belongs to
  int64_t position = 0;      // of the data: the next batch, counted over all epochs
  uint64_t random_step = 0;  // what random ops draw by (PreparedProgram::step)
  // What must be the same for the run to continue as if never stopped.
  uint64_t seed = 0;
  std::string data;               // DataSource::Describe
  uint64_t data_fingerprint = 0;  // FingerprintOf; 0: unknown
  int64_t rows = 0;
  int64_t batch_size = 0;
  bool shuffle = false;
  bool drop_last = false;
  // What should be the same for the very same bits.
  int threads = 0;
  int ranks = 1;
  std::string instructions;  // "avx512", "avx2", ...
  // Of loss and metrics since they were last shown.
  NamedTensors progress;
  std::vector<EvaluationRecord> evaluations;  // the last of each test set
  BestRecord best;
  NonFiniteCounts non_finite;
  // States that the last batch left for the next, by the names that they are fed to.
  NamedTensors carried;
  // Of several ranks: running statistics as each rank has them, as "NAME@RANK". (The variables of
  // the snapshot are their means.)
  NamedTensors of_ranks;
};

// A snapshot as it was read.
struct SavedSnapshot {
  std::string path;
  TrainSnapshot state;
  ProgramDesc main, startup;
  Scope variables;  // the persistable ones of main
  std::string job_text;
};

// The widest vector instructions of this machine that kernels may choose.
std::string InstructionSet();

// Writes DIRECTORY/step_N and DIRECTORY/LATEST, which names it (and BEST when `best`); then removes
// all but the newest `keep` (0: keeps all) and the one that BEST names. Returns the snapshot's
// path. An error (a full disk) leaves the snapshots that are there as they were.
std::string WriteSnapshot(const std::string& directory, const TrainSnapshot& snapshot,
                          const ProgramDesc& main, const ProgramDesc& startup, const Scope& scope,
                          const std::string& job_text, int64_t keep, bool best = false);

// The newest snapshot of a directory (or of "snapshots" in it: a run's output), or `path` itself
// when it is one; "" when there is none.
std::string FindSnapshot(const std::string& path);

// Paths of all snapshots of a directory, oldest first.
std::vector<std::string> ListSnapshots(const std::string& directory);

// Removes all snapshots of a directory, and what names them. Throws kIo for what cannot be removed.
void RemoveSnapshots(const std::string& directory);

// The snapshot that the BEST of a directory names; "" without one.
std::string BestSnapshot(const std::string& directory);
// Makes BEST name the snapshot of that step, which is copied when only the directory `from` has it.
// When neither has it, or `from` is "", there is no BEST afterwards and false is returned.
bool SetBest(const std::string& directory, const std::string& from, int64_t step);

// Checks every file and reads it. Throws kDataLoss for a damaged snapshot, naming the file, and
// kUnimplemented for one of another version.
SavedSnapshot ReadSnapshot(const std::string& path);

// What keeps a run like `now`, of these programs, from going on as the run that made `then` would
// have: "its batch_size is 20, the job's is 21", ... Logs a warning for another number of threads
// or instruction set.
std::vector<std::string> Mismatches(const SavedSnapshot& then, const TrainSnapshot& now,
                                    const ProgramDesc& main, const ProgramDesc& startup);

// What `coracle snapshot` prints: of one snapshot its state and the norm of every variable; of two
// what differs between them, with the norms of the differences.
std::string DescribeSnapshot(const SavedSnapshot& snapshot);
std::string CompareSnapshots(const SavedSnapshot& a, const SavedSnapshot& b);

}  // namespace coracle
