#pragma once
// TrainStep: the training program, prepared, with its data and what it gathers on the way. One Run
// is one update.

#include <coracle/executor/executor.h>
#include <coracle/train/data/carry.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/feeder.h>
#include <coracle/train/log/window.h>
#include <coracle/train/run/probe.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/snapshot.h>

#include <optional>
#include <string>

namespace coracle {

class TrainStep {
 public:
  // `config` and `net` live as long, CheckStreams has accepted the data. Throws Error with the
  // place in the job: data that does not fit the program, too few rows for a batch.
  // Of several ranks each runs its rows of every batch; `net` is then as InsertAllReduce made it.
  TrainStep(const JobConfig& config, const Net& net, DataSourcePtr data, const Executor& executor,
            const Ranks& ranks);

  struct Result {
    double loss;    // mean over the batches
    int64_t epoch;  // of the first batch, from 0
    int64_t rows;   // of all ranks, as the loss
  };
  // Runs the job's iter_size batches.
  Result Run(Scope& scope);

  int64_t steps_per_epoch() const { return UpdatesOf(batches_per_epoch_); }
  // max_iter, or as many updates as epochs have, whichever is less.
  int64_t TotalSteps() const;
  int64_t epoch() const { return reader_.position() / batches_per_epoch_; }  // of the next step
  int64_t last_epoch() const;                                                // of the last step
  bool EpochEnded() const;                                                   // in the last step
  bool EpochIsEnding() const;  // the next step ends it

  StepWindow& window() { return window_; }
  Probe& probe() { return probe_; }
  std::string ProfileTable() const { return program_.ProfileTable(); }

  // Sets what a snapshot holds of data, random numbers and sums.
  void Save(TrainSnapshot* snapshot) const;
  // Goes on where `snapshot` was. Throws kInvalidArgument when its carried states are others.
  void Load(const TrainSnapshot& snapshot);
  // The same from a snapshot of another job, as far as it can be. Returns a line of what begins
  // anew, or "".
  std::string LoadWhatFits(const TrainSnapshot& snapshot);

 private:
  int64_t IterSize() const { return config_.training.iter_size; }
  int64_t UpdatesOf(int64_t batches) const {
    return batches / IterSize() + (batches % IterSize() != 0 ? 1 : 0);
  }
  const std::vector<Tensor>& Feeds(const std::vector<Tensor>& batch);
  double RunBatch(Scope& scope, int64_t* rows);
  void LoadSums(const TrainSnapshot& snapshot);

  const JobConfig& config_;
  const Ranks ranks_;
  const DataSourcePtr data_;
  BatchReader reader_;
  const int64_t batches_per_epoch_;
  StateCarry carry_;
  Feeder feeder_;
  StepWindow window_;
  Probe probe_;
  PreparedProgram program_;
  mutable std::optional<uint64_t> data_fingerprint_;  // once a snapshot asks for it
  DType share_dtype_;  // of the share of the rank's rows in a batch, which is fed
  std::vector<Tensor> feeds_of_ranks_;
};

// Throws kInvalidArgument where a job carries states through data whose batches of that size do not
// continue each other.
void CheckStreams(const JobConfig& config, const DataSource& data, int64_t batch_size);

}  // namespace coracle
