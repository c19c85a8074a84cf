#pragma once
// TrainStep: the prepared training program with its data and the values it collects. One Run is
// one update.

#include <coracle/executor/executor.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/report/window.h>
#include <coracle/train/run/feeder.h>
#include <coracle/train/run/probe.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/ranks/carry.h>
#include <coracle/train/run/snapshot/snapshot.h>

#include <map>
#include <optional>
#include <string>

namespace coracle::inline internal {

class TrainStep {
 public:
  // `config` and `net` must outlive this object; call CheckStreams on the data before. Throws Error
  // with the place in the job for data that does not fit the program, and for too few rows for a
  // batch. With several ranks, each rank runs its rows of every batch, and `net` is the result
  // of InsertAllReduce.
  TrainStep(const JobConfig& config, const Net& net, DataSourcePtr data, const Executor& executor,
            const Ranks& ranks);

  struct Result {
    double loss;    // mean over the batches
    int64_t epoch;  // of the first batch, from 0
    int64_t rows;   // on all ranks, like the loss
  };
  // Runs the job's iter_size batches.
  Result Run(Scope& scope);
  // For a job that quantises: the next steps run the program of this phase.
  void SetPhase(QuantizePhase phase);

  int64_t steps_per_epoch() const { return UpdatesOf(batches_per_epoch_); }
  // The smaller of max_iter and the number of updates in the job's epochs.
  int64_t TotalSteps() const;
  int64_t epoch() const { return reader_.position() / batches_per_epoch_; }  // of the next step
  int64_t last_epoch() const;                                                // of the last step
  bool EpochEnded() const;                                                   // in the last step
  bool EpochIsEnding() const;  // whether the next step ends it

  StepWindow& window() { return window_; }
  Probe& probe() { return probe_; }
  std::string ProfileTable() const { return Program().ProfileTable(); }

  // Saves the state of data, random numbers and sums.
  void Save(TrainSnapshot* snapshot) const;
  // Continues from `snapshot`. Throws kInvalidArgument if its carried states differ.
  void Load(const TrainSnapshot& snapshot);
  // Like Load, but for a snapshot of another job: loads what fits. Returns a line that names what
  // starts from the beginning, or "".
  std::string LoadWhatFits(const TrainSnapshot& snapshot);

 private:
  const PreparedProgram& Program() const { return programs_.at(phase_); }
  PreparedProgram& Program() { return programs_.at(phase_); }
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
  // By phase; a job that does not quantise has only kQuantize.
  std::map<QuantizePhase, PreparedProgram> programs_;
  QuantizePhase phase_ = QuantizePhase::kQuantize;
  mutable std::optional<uint64_t> data_fingerprint_;  // computed for the first snapshot
  DType share_dtype_;                                 // dtype of the feed kRankShare
  std::vector<Tensor> feeds_of_ranks_;
};

// Throws kInvalidArgument if a job carries states but the data's batches of that size do not
// continue each other.
void CheckStreams(const JobConfig& config, const DataSource& data, int64_t batch_size);

}  // namespace coracle::inline internal
