#pragma once
// RunJob: trains a model as a job says: builds its programs, goes through the data, evaluates,
// takes snapshots, and saves the result. Prints nothing: callbacks tell what happens.

#include <coracle/executor/executor.h>
#include <coracle/train/job/job.h>
#include <coracle/train/log/clip_report.h>
#include <coracle/train/log/window.h>
#include <coracle/train/run/evaluate.h>
#include <coracle/train/run/snapshot.h>

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
  StepWindow& window;  // of the steps up to this one, in the order of plan.metric_names
  // This is a step to report: a multiple of the job's `display`, or the last.
  bool show;
  // Optimizers' rates at this step, by their variables; known when `show`.
  const std::vector<NamedValue>& learning_rates;
  const std::vector<ClipReport>& clips;  // since the last display; known when `show`
};

struct EvalReport {
  const TrainPlan& plan;
  std::string set;  // name of the test set
  int64_t step;
  int64_t epoch;  // that the last step belonged to
  int64_t rows;
  std::vector<NamedValue> values;  // the loss, then the metrics, by their printed names
  bool best = false;               // better than all before, of what the job watches
  bool restored = false;           // the last of a run: of the best parameters, brought back
};

// All optional. References are valid during the call only.
struct TrainCallbacks {
  std::function<void(const TrainPlan&)> on_start = {};
  std::function<void(const StepReport&)> on_step = {};
  std::function<void(const EvalReport&)> on_eval = {};
  std::function<void(const std::string& path)> on_snapshot = {};
  // Lines for whoever looks on: warnings, what weights were loaded, debug_info.
  std::function<void(const std::string& line)> on_message = {};
  // Asked after each step and batch of an evaluation, and in loops of an evaluated program; true:
  // save a snapshot and return.
  std::function<bool()> stop = {};
  std::function<bool()> save = {};  // asked after each step; true: save a snapshot and go on
};

struct TrainOptions {
  CompileOptions compile = {};
  bool resume = false;
  // What another run has written into the job's directories is removed before the first step.
  // Without this it is an error (kAlreadyExists), unless that run is the one to resume.
  bool overwrite = false;
  // A snapshot, or a directory of them; kNotFound without one there. "": the job's directory;
  // without one there the run starts afresh.
  std::string resume_from = {};
  // Go on from a snapshot that does not fit the job: what differs is told, variables are taken as
  // far as they fit, and the epoch begins anew when the data is another.
  bool override_mismatch = false;
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct TrainResult {
  bool stopped = false;  // by the `stop` callback, or by max_seconds
  bool time_up = false;  // by max_seconds
  int64_t steps = 0;     // done, of all runs
  // Of the last evaluation of the first test set; without test data, means over the last steps
  // shown.
  double loss = 0;
  std::vector<NamedValue> metrics;
  std::vector<EvaluationRecord> evaluations;  // the last of each test set
  BestRecord best;
  // Of all runs, steps whose loss was a nan or infinite: see NonFiniteLoss.
  int64_t non_finite_steps = 0, first_non_finite_step = 0;

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
// or a parameter becomes nan or infinite, unless the job says otherwise: see NonFiniteLoss.
TrainResult RunJob(const JobConfig& config, const TrainOptions& options = {},
                   const TrainCallbacks& callbacks = {});

}  // namespace coracle
