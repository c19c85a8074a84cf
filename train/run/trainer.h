#pragma once
// RunJob trains a model according to a job: it builds the programs, iterates over the data,
// evaluates, takes snapshots and saves the result. It prints nothing; callbacks report progress.

#include <coracle/communication/communicator.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/job/job.h>
#include <coracle/train/report/report.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

// All callbacks are optional. References are valid only during the call.
struct TrainCallbacks {
  std::function<void(const TrainPlan&)> on_start = {};
  std::function<void(const StepReport&)> on_step = {};
  std::function<void(const EvalReport&)> on_eval = {};
  std::function<void(const std::string& path)> on_snapshot = {};
  // Lines for the user: warnings, which weights were loaded, debug_info.
  std::function<void(const std::string& line)> on_message = {};
  // Called after each step, after each batch of an evaluation, and in loops of an evaluated
  // program. If it returns true, the run saves a snapshot and ends.
  std::function<bool()> stop = {};
  // Called after each step. If it returns true, the run saves a snapshot and goes on.
  std::function<bool()> save = {};
};

struct TrainOptions {
  CompileOptions compile = {};
  bool resume = false;
  // Remove the files of another run from the job's directories before the first step. Otherwise
  // such files are an error (kAlreadyExists), unless that run is the one to resume.
  bool overwrite = false;
  // A snapshot, or a directory of snapshots; kNotFound if there is none. "": the job's directory;
  // if it has no snapshot, the run starts from the beginning.
  std::string resume_from = {};
  // Resume from a snapshot that does not match the job: differences are reported, matching
  // variables are loaded, and the epoch starts again if the data differs.
  bool override_mismatch = false;
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
  // This rank's connection if several ranks train together (call RunJob on each of them, with the
  // same job). Each rank takes its rows of every batch (RowsOfRank). Only rank 0 writes files and
  // calls the callbacks; stop and save are called on every rank. All ranks read snapshots, so each
  // must find them at the same path.
  std::shared_ptr<Communicator> communicator = {};
  // The number of steps between checks that all ranks have equal parameters; 0: no checks.
  int64_t check_parameters = 100;
};

struct TrainResult {
  bool stopped = false;  // by the `stop` callback or by max_seconds
  bool time_up = false;  // by max_seconds
  int64_t steps = 0;     // number of steps, of all runs
  // From the last evaluation of the first test set. Without test data: means over the last
  // displayed steps.
  double loss = 0;
  std::vector<NamedValue> metrics;
  std::vector<EvaluationRecord> evaluations;  // the last evaluation of each test set
  BestRecord best;
  // The number and the first of the steps, in all runs, whose loss was nan or infinite;
  // see NonFiniteLoss.
  int64_t non_finite_steps = 0, first_non_finite_step = 0;

  ProgramDesc main, startup, test;
  Scope scope;

  // Paths of files; "" if a file was not written.
  std::string main_path, startup_path, dump_path;  // programs, and the trained one as text
  std::string model_path;                          // saved inference model: .pdmodel
  std::string vocabulary_path;                     // for a text: vocabulary.json
  std::string eval_path;                           // the model for `coracle test`: loss and metrics
  // Of a job that quantises: the models in 8 bits, and what the evaluation model computes on the
  // first test set.
  std::string int8_model_path, int8_eval_path;
  std::vector<NamedValue> int8_values;
  std::string snapshot_path;  // the last snapshot
  std::string profile;        // the table, if compile.profile
};

// Throws Error for any problem of the job, its model, data or snapshot. Also throws if the loss or
// a parameter becomes nan or infinite, unless the job says otherwise (see NonFiniteLoss).
TrainResult RunJob(const JobConfig& config, const TrainOptions& options = {},
                   const TrainCallbacks& callbacks = {});

}  // namespace coracle
