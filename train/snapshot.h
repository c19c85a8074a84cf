#pragma once
// Snapshots: a directory that holds all that a training run needs to go on, bit for bit, where it
// was: main.pb and startup.pb (the programs), state.pdiparams (parameters and optimizer state),
// carried.npz where states are carried from batch to batch, job.pbtxt, and manifest.json, which
// says what is in state.pdiparams, how far the run is, and the size and checksum of each file.
// Written whole or not at all.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/scope.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

struct Snapshot {
  std::string job;           // its name
  int64_t step = 0;          // steps done
  int64_t epoch = 0;         // that the next step belongs to
  int64_t position = 0;      // of the data: the next batch, counted over all epochs
  uint64_t random_step = 0;  // what random ops draw by (PreparedProgram::step)
  // What must be the same for the run to continue as if never stopped.
  uint64_t seed = 0;
  std::string data;  // DataSource::Describe
  int64_t rows = 0;
  int64_t batch_size = 0;
  bool shuffle = false;
  bool drop_last = false;
  // What should be the same for the very same bits.
  int threads = 0;
  std::string instructions;  // "avx512", "avx2", ...
  // Sums since progress was last shown: loss, then the metrics.
  std::vector<double> sums;
  int64_t sum_rows = 0;
  // States that the last batch left for the next, by the names that they are fed to.
  std::vector<std::pair<std::string, Tensor>> carried;
};

// The widest vector instructions of this machine that kernels may choose.
std::string InstructionSet();

// Writes DIRECTORY/step_N and DIRECTORY/LATEST, which names it; then removes all but the newest
// `keep` (0: keeps all). Returns the snapshot's path.
std::string WriteSnapshot(const std::string& directory, const Snapshot& snapshot,
                          const ProgramDesc& main, const ProgramDesc& startup, const Scope& scope,
                          const std::string& job_text, int64_t keep);

// The newest snapshot of a directory, or `path` itself when it is one; "" when there is none.
std::string FindSnapshot(const std::string& path);

// Checks every file of the snapshot, and that it was made by these programs; then puts its
// variables into `scope`. Throws kDataLoss for a damaged snapshot and kInvalidArgument for one of
// another model, naming the file or the first difference; the scope is unchanged then.
Snapshot ReadSnapshot(const std::string& path, const ProgramDesc& main, const ProgramDesc& startup,
                      Scope& scope);

// Throws kInvalidArgument when the run that made `snapshot` had another seed, data or batch than
// `now`, naming it. Logs a warning for another number of threads or instruction set.
void CheckContinues(const std::string& path, const Snapshot& snapshot, const Snapshot& now);

}  // namespace coracle
