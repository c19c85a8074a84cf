#pragma once
// The programs of a job.

#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/local_sgd.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/job/appended_training.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/trainer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

// A program with what it takes and measures.
struct Net {
  ProgramDesc program;
  std::vector<std::string> columns;   // inputs that the data feeds; carried ones are not among them
  std::vector<MetricConfig> metrics;  // those of the job whose variables it has
  bool has_loss = true;
  // Of one rank of several: fetched in place of the job's loss, see InsertWholeValues; "": itself.
  std::string whole_loss = {};
  // Gradients of parameters of which a step has the rank's part: the ranks' parts add up to them.
  std::vector<std::string> gradient_parts = {};

  std::vector<std::string> Feeds(const JobConfig& config) const;  // columns, then what is carried
  const std::string& Loss(const JobConfig& config) const {
    return whole_loss.empty() ? config.loss : whole_loss;
  }
};

// What a rank of several feeds beside the batch: see AllReduceOptions::share.
inline constexpr const char* kRankShare = "rank_share";

// The share of the rank's rows in the batch that was read last, [1].
Tensor ShareOfRows(const BatchReader& reader, DType dtype);

// As InsertAllReduce made them, or InsertLocalSgd.
struct RankPrograms {
  Net train;
  ProgramDesc startup;
  std::vector<Net> tests;
  std::vector<GradientBucket> buckets;
  std::vector<ShardedState> states;
  std::optional<LocalSgdReport> local_sgd;
  std::vector<std::string> broadcast, local, own;  // see AllReduceReport
};

struct Programs {
  Net train;  // with backward and optimizer ops
  ProgramDesc startup;
  std::optional<RankPrograms> of_rank;  // run in their place by one rank of several

  const Net& RunTrain() const { return of_rank ? of_rank->train : train; }
  const std::vector<Net>& RunTests() const { return of_rank ? of_rank->tests : tests; }
  const ProgramDesc& RunStartup() const { return of_rank ? of_rank->startup : startup; }

  AppendedTraining training;  // what is to be done between steps
  std::vector<Net> tests;     // of JobConfig::TestSets
  Net deploy;                 // forward only
};

// Reads the model of a job for each state, checks the names that the job gives, freezes parameters
// and appends backward and the optimizer's ops. Throws Error with the place in the job.
Programs BuildPrograms(const JobConfig& config, const TrainOptions& options);

// The variable `name` of the root block; throws kNotFound: "PLACE: WHAT 'NAME': the model has no
// such variable; did you mean ...?".
const VarDesc& RequireVar(const ProgramDesc& program, const std::string& place,
                          const std::string& what, const std::string& name);

}  // namespace coracle
