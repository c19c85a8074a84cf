#pragma once
// RunJob trains a model as a job says: it builds the programs, goes through the data, evaluates,
// takes snapshots, and saves the result. It prints nothing: callbacks report what happens.
// EvaluateSavedModel tests what a job has deployed.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/layers/layer.h>
#include <coracle/train/job/job.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

class StepWindow;

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

// Of one gradient clip, or of the error clip of one variable, since the last display.
struct ClipReport {
  enum class Kind { kGradient, kError };
  Kind kind = Kind::kGradient;
  std::string name;   // of a gradient clip its group, parameter or kind; else the variable
  int64_t times = 0;  // it was asked so often: of a gradient clip at each update
  int64_t acted = 0;  // and changed a gradient so often
  double factor = 1;  // by which it multiplied a norm, where it took away the most
  double norm = 0;    // of a clip by norm the largest norm, where it acted, and the limit; else 0
  double limit = 0;
};

struct StepReport {
  const TrainPlan& plan;
  int64_t step;   // steps done, this one included
  int64_t epoch;  // of this step, from 0
  int64_t rows;   // of its batch
  double loss;
  StepWindow& window;
  // This is a step to report: a multiple of the job's `display`, or the last.
  bool show;
  // Optimizers' rates at this step, by their variables; known when `show`.
  const std::vector<NamedValue>& learning_rates;
  const std::vector<ClipReport>& clips;  // since the last display; known when `show`

  // Of the steps since the last display, or of the last `average_loss` steps where the job says so.
  double MeanLoss() const;
  // Of the steps since the last display, in the order of plan.metric_names. Valid until
  // the next call.
  const std::vector<double>& MeanMetrics() const;
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

// What an evaluation of one test set found: the loss, then the metrics, by their printed names.
struct EvaluationRecord {
  std::string set;
  int64_t step = 0;
  std::vector<NamedValue> values;
};

// The best evaluation so far of what the job watches.
struct BestRecord {
  std::string metric;  // "" before the first
  double value = 0;
  int64_t step = 0;
  int64_t worse = 0;  // evaluations since then
};

struct TrainResult {
  bool stopped = false;  // by the `stop` callback, or by max_seconds
  bool time_up = false;  // by max_seconds
  int64_t steps = 0;     // done, of all runs
  // Of the last evaluation of the first test set; without test data, means over the
  // last steps shown.
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

struct EvaluateOptions {
  std::string test_set = {};  // of the job, by its name; "": the first
  CompileOptions compile = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// Evaluates a saved inference model (see LoadInferenceModel) on a test set of a job (as many
// batches as its `iterations` say), or on its training data when it has no test set. Throws
// kNotFound for a test_set that the job does not have. Of a model that has the job's loss the
// result is the loss and the job's metrics. Of any other a fetch of one number is averaged over the
// rows; for one of shape [rows, classes] the result is "accuracy": how often the largest is the
// label's. With compile.profile `profile` gets the table of times.
std::vector<NamedValue> EvaluateSavedModel(const std::string& path, const JobConfig& job,
                                           const EvaluateOptions& options = {},
                                           std::string* profile = nullptr);

// Loading of values for a model's variables, by name, from a file of another run.

struct WeightsReport {
  std::string file;
  std::vector<std::string> loaded;
  std::vector<std::string> mismatched;    // of another shape or dtype in the file
  std::vector<std::string> not_in_file;   // keep the values that they have
  std::vector<std::string> not_in_model;  // of the file

  // "weights FILE: 6 of 8 variables loaded; not in the file: ...; not in the model: ...".
  std::string ToString() const;
};

// Copies the values of `names`, persistable variables of `program`, into `scope`. `file` is a
// snapshot or a directory of them (of its optimizer's state nothing is taken), a saved model (its
// .pdmodel or .pdiparams file, prefix or directory), or an .npz. Throws kInvalidArgument when
// nothing fits, and for a variable of another shape or dtype unless `skip_mismatched`.
WeightsReport LoadWeights(const std::string& file, const ProgramDesc& program,
                          const std::vector<std::string>& names, bool skip_mismatched,
                          Scope& scope);

// New text from a saved character model.

struct GenerateOptions {
  std::string prompt = "\n";  // at least one character; all of the model's vocabulary
  int64_t length = 500;       // characters to write after it
  // Scores are divided by it before they become probabilities: below 1 likely characters become
  // likelier still; 0 takes the likeliest always.
  double temperature = 1;
  uint64_t seed = 1;  // the same seed writes the same text
  CompileOptions compile = {};
};

// The text that follows the prompt. `model`: what a job with a text and `deploy` has saved: a
// directory with model.pdmodel, model.pdiparams and vocabulary.json, or the .pdmodel file in it.
// The model's first input is characters [batch, time], its first output scores [batch, time,
// characters of the vocabulary]; each further input takes, in order, what a further output gave.
// Throws Error for a model of another form, a prompt that does not fit, and options out of range.
std::string GenerateText(const std::string& model, const GenerateOptions& options);

// The program behind it: the model's ops inside a while loop that draws one character each time
// (sampling_id of softmax(scores / temperature), or arg_max when `greedy`) and goes on from it.
// Feeds: `before` int64 [1, n], characters to go through first; `last` int64 [1, 1], the one to go
// on from; `count` int64 [1], at most 256; `temperature` float32 [1]; then the states. Fetches:
// `text` int64 [256], whose first `count` elements are the characters; `id`, the `last` of a
// further run; then the states for it. The parameters are the model's, by their names.
struct GenerateProgram {
  std::shared_ptr<ProgramDesc> main;
  std::vector<std::string> feeds, fetches;
  std::vector<Tensor> states;  // zeros, to begin with
};
// Throws kUnimplemented for a model with sub-blocks.
GenerateProgram MakeGenerateProgram(const InferenceModel& model, bool greedy);

// Times of a model, layer by layer.

struct TimeOptions {
  CompileOptions compile = {};  // its `profile` is set
  std::string loss = "loss";    // without such a variable only the forward ops are timed
  int64_t batch_size = 64;      // for unknown dimensions
  int64_t iterations = 50;
  int64_t warm_up = 3;              // steps before those that are timed
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

enum class StepPart { kForward, kBackward, kUpdate };

struct LayerTime {
  std::string layer;  // the result's name, or the layer's own where only its temporaries have names
  std::string ops;    // types of its forward ops
  std::string place;  // "lenet.pbtxt:7:9", or ""
  // Seconds in each step, by StepPart.
  std::array<std::vector<double>, 3> seconds;
};

struct ModelTimes {
  std::vector<LayerTime> layers;  // in the order of the model; a last one for what is no layer's
  LayerTime total;                // of all ops
  std::vector<double> steps;      // seconds of whole steps, by the clock
  int64_t batch_size = 0;
  int64_t batches = 1;  // in one step
  // An op that updates the parameters of several layers (or looks at their gradients) counts for
  // each as its parameters' elements do; there was one.
  bool shared = false;
  std::string ToString() const;  // a table with p50, p90 and p99 in milliseconds
};

// Runs the model (with backward and a momentum update of rate 0 when it has the loss) on drawn
// data: floats in [0, 1), integers 0 and 1. Throws as the model's ops do.
ModelTimes TimeModel(const BuiltModel& model, const TimeOptions& options);

// The same of a job's training step as it is: its optimizers, clips, precision, accumulation (a
// step is then iter_size batches) and batch size. Parameters move. Of `options` loss and batch_size
// are not used.
ModelTimes TimeJob(const JobConfig& job, const TimeOptions& options);

// The same of a model that was saved with its parameters, as `coracle run` runs it: forward, with
// the parameters frozen. Of `options` loss is not used. Throws as LoadInferenceModel does.
ModelTimes TimeSavedModel(const std::string& path, const TimeOptions& options);

// The value that `percent` of the values do not exceed (nearest rank); 0 of none.
double Percentile(std::vector<double> values, double percent);

}  // namespace coracle
