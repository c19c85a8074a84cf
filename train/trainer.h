#pragma once
// RunJob: trains a model as a job says: builds its programs, goes through the data, evaluates,
// takes snapshots, and saves the result. Prints nothing: callbacks tell what happens.

#include <coracle/executor/executor.h>
#include <coracle/train/evaluate.h>
#include <coracle/train/job.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace coracle {

// What a run is about to do.
struct TrainPlan {
  std::string job;
  std::string data;        // description of the training data
  int64_t first_step = 0;  // steps done before (0 unless resumed)
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;
  int64_t parameters = 0;  // numbers to train
  std::string loss_name = "loss";
  std::vector<std::string> metric_names;
  std::string resumed_from;  // path of the snapshot; "" for a fresh start
  std::string note;          // what the user should know, or ""
};

struct StepReport {
  const TrainPlan& plan;
  int64_t step;   // steps done, this one included
  int64_t epoch;  // of this step, from 0
  int64_t rows;   // of its batch
  double loss;
  const std::vector<double>& metrics;  // in the order of plan.metric_names
  // Means over the rows since the last step that was a multiple of the job's `display`.
  double mean_loss;
  const std::vector<double>& mean_metrics;
  bool show;  // this is such a step, or the last
};

struct EvalReport {
  const TrainPlan& plan;
  int64_t step;
  int64_t epoch;  // that the last step belonged to
  int64_t rows;
  double loss;
  std::vector<double> metrics;
};

// All optional. References are valid during the call only.
struct TrainCallbacks {
  std::function<void(const TrainPlan&)> on_start;
  std::function<void(const StepReport&)> on_step;
  std::function<void(const EvalReport&)> on_eval;
  std::function<void(const std::string& path)> on_snapshot;
  std::function<bool()> stop;  // asked after each step; true: save a snapshot and return
};

struct TrainOptions {
  CompileOptions compile;
  bool resume = false;
  // A snapshot, or a directory of them; kNotFound without one there. "": the job's directory;
  // without one there the run starts afresh.
  std::string resume_from;
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct TrainResult {
  bool stopped = false;  // by the `stop` callback
  int64_t steps = 0;     // done, of all runs
  // Of the last evaluation; without test data, means over the last steps shown.
  double loss = 0;
  std::vector<NamedValue> metrics;

  ProgramDesc main, startup, test;
  Scope scope;

  // Files; "" when not written.
  std::string main_path, startup_path, dump_path;  // programs, and the trained one as text
  std::string model_path;                          // saved inference model: .pdmodel
  std::string vocabulary_path;                     // of text: vocabulary.json
  std::string eval_path;                           // the same for `coracle test`: loss and metrics
  std::string snapshot_path;                       // the last
  std::string profile;                             // table, when compile.profile
};

// Throws Error for whatever is wrong with the job, its model, data or snapshot, and when the loss
// becomes nan or infinite.
TrainResult RunJob(const JobConfig& config, const TrainOptions& options = {},
                   const TrainCallbacks& callbacks = {});

}  // namespace coracle
