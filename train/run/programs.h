#pragma once
// Builds the programs of a job.

#include <coracle/distribute/all_reduce.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/job/appended_training.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/trainer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// A program with its inputs and its metrics.
struct Net {
  ProgramDesc program;
  std::vector<std::string> columns;   // inputs fed from the data, without carried states
  std::vector<MetricConfig> metrics;  // the job's metrics whose variables the program has
  bool has_loss = true;
  // For one rank of several: fetched instead of the job's loss, see InsertWholeValues; "":
  // the loss.
  std::string whole_loss = {};
  // Gradients of parameters that are divided: each rank has a part, and the gradient is the sum of
  // the parts.
  std::vector<std::string> gradient_parts = {};

  std::vector<std::string> Feeds(const JobConfig& config) const;  // columns, then carried states
  const std::string& Loss(const JobConfig& config) const {
    return whole_loss.empty() ? config.loss : whole_loss;
  }
};

// The feed of a rank in addition to the batch: see AllReduceOptions::share.
inline constexpr const char* kRankShare = "rank_share";

// The share of this rank's rows in the last batch, [1].
Tensor ShareOfRows(const BatchReader& reader, DType dtype);

// The programs as changed by InsertAllReduce.
struct RankPrograms {
  Net train;
  ProgramDesc startup;
  std::vector<Net> tests;
  std::vector<GradientBucket> buckets;
  std::vector<ShardedState> states;
  std::vector<std::string> broadcast, local, own;  // see AllReduceReport
};

// Of a job that quantises: the programs that round, without 16-bit floats.
struct RoundingPrograms {
  Net deploy;
  std::optional<Net> eval;       // of the first test set
  ProgramDesc first_steps = {};  // see InitializeLearnedSteps
};

struct Programs {
  // Not implicit: g++ 12 destroys a part of an aggregate that an exception left unmade.
  Programs();

  Net train;  // with backward and optimizer ops
  ProgramDesc startup;
  std::optional<RankPrograms> of_rank;  // one rank of several runs these instead

  const Net& RunTrain() const { return of_rank ? of_rank->train : train; }
  const std::vector<Net>& RunTests() const { return of_rank ? of_rank->tests : tests; }
  const ProgramDesc& RunStartup() const { return of_rank ? of_rank->startup : startup; }

  AppendedTraining training;  // the work between steps
  std::vector<Net> tests;     // of JobConfig::TestSets
  Net deploy;                 // forward only, in floating point
  std::optional<RoundingPrograms> rounding;
};

// Reads the model of a job for each state, checks the names in the job, freezes parameters, and
// appends backward and the optimizer's ops. Throws Error with the place in the job.
Programs BuildPrograms(const JobConfig& config, const TrainOptions& options);

}  // namespace coracle::inline internal
