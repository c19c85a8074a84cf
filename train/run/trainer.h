#pragma once
// RunJob trains a model according to a job: it builds the programs, iterates over the data,
// evaluates, takes snapshots and saves the result. It prints nothing; callbacks report progress.
// EvaluateSavedModel evaluates a saved model.

#include <coracle/executor/executor.h>
#include <coracle/framework/base/latency.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/layers/layer.h>
#include <coracle/train/job/job.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

class StepWindow;

// The plan of a run, reported before its first step.
struct TrainPlan {
  std::string job;
  std::string data;        // description of the training data
  int64_t first_step = 0;  // steps done before (0 unless resumed)
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;
  int64_t parameters = 0;  // number of trainable elements
  std::string loss_name = "loss";
  std::vector<std::string> metric_names;
  std::string resumed_from;  // path of the snapshot; "" for a fresh start
  std::string note;          // a message for the user, or ""
};

// Statistics of one gradient clip, or of the error clip of one variable, since the last display.
struct ClipReport {
  enum class Kind { kGradient, kError };
  Kind kind = Kind::kGradient;
  std::string name;   // group, parameter or kind of a gradient clip; or the variable
  int64_t times = 0;  // number of gradients; for a gradient clip, of updates
  int64_t acted = 0;  // how often it changed a gradient
  double factor = 1;  // the smallest factor by which it multiplied a norm
  double norm = 0;    // for clips by norm: the largest norm that it clipped, and its limit
  double limit = 0;
};

struct StepReport {
  const TrainPlan& plan;
  int64_t step;   // steps done, this one included
  int64_t epoch;  // of this step, counted from 0
  int64_t rows;   // rows of its batch, on all ranks
  double loss;
  StepWindow& window;
  // Whether to report this step: a multiple of the job's `display`, or the last.
  bool show;
  // The optimizers' rates at this step, by their variables; known if `show`.
  const std::vector<NamedValue>& learning_rates;
  const std::vector<ClipReport>& clips;  // since the last display; known if `show`
  // For each rank, the share of the time since the last display that it waited for exchanges and
  // for other ranks; known if `show`. Empty for one rank.
  std::vector<double> waited = {};

  // The mean over the steps since the last display, or over the last `average_loss` steps.
  double MeanLoss() const;
  // Means over the steps since the last display, in the order of plan.metric_names. Valid until
  // the next call.
  const std::vector<double>& MeanMetrics() const;
};

struct EvalReport {
  const TrainPlan& plan;
  std::string set;  // name of the test set
  int64_t step;
  int64_t epoch;  // epoch of the last step
  int64_t rows;
  std::vector<NamedValue> values;  // the loss, then the metrics, by their printed names
  bool best = false;               // the watched value is the best so far
  bool restored = false;           // the last evaluation of a run, with the best parameters
};

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

// The result of evaluating one test set: the loss, then the metrics, by their printed names.
struct EvaluationRecord {
  std::string set;
  int64_t step = 0;
  std::vector<NamedValue> values;
};

// The best evaluation so far, by the value that the job watches.
struct BestRecord {
  std::string metric;  // "" before the first evaluation
  double value = 0;
  int64_t step = 0;
  // The best value among the evaluations that a longer run would make too, and the number of such
  // evaluations since then. early_stop uses these.
  std::optional<double> counted = std::nullopt;
  int64_t worse = 0;
  std::string counted_metric = {};  // what they are of; "" before the first
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
  std::string snapshot_path;                       // the last snapshot
  std::string profile;                             // the table, if compile.profile
};

// Throws Error for any problem of the job, its model, data or snapshot. Also throws if the loss or
// a parameter becomes nan or infinite, unless the job says otherwise (see NonFiniteLoss).
TrainResult RunJob(const JobConfig& config, const TrainOptions& options = {},
                   const TrainCallbacks& callbacks = {});

struct EvaluateOptions {
  std::string test_set = {};  // name of a test set of the job; "": the first
  CompileOptions compile = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// Evaluates a saved inference model (see LoadInferenceModel) on a test set of a job, with the
// number of batches given by its `iterations`, or on the job's training data if it has no test set.
// Throws kNotFound for a test_set that the job does not have. For a model with the job's loss, the
// result is the loss and the job's metrics. For any other model, a fetch of one number is averaged
// over the rows, and a fetch of shape [rows, classes] gives "accuracy": the share of rows whose
// label has the largest score. With compile.profile, `profile` gets the table of times.
std::vector<NamedValue> EvaluateSavedModel(const std::string& path, const JobConfig& job,
                                           const EvaluateOptions& options = {},
                                           std::string* profile = nullptr);

// Report on loading a model's variables, by name, from a file of another run.

struct WeightsReport {
  std::string file;
  std::vector<std::string> loaded;
  std::vector<std::string> mismatched;    // with another shape or dtype in the file
  std::vector<std::string> not_in_file;   // variables that keep their values
  std::vector<std::string> not_in_model;  // variables of the file

  // "weights FILE: 6 of 8 variables loaded; not in the file: ...; not in the model: ...".
  std::string ToString() const;
};

// Copies the values of `names`, persistable variables of `program`, into `scope`. The file of
// `weights` is a snapshot or a directory of them (the optimizer's state is ignored), a saved model
// (.pdmodel or .pdiparams file, prefix or directory), or an archive. Throws kInvalidArgument if
// nothing matches, and for a variable of another shape or dtype unless `skip_mismatched`.
WeightsReport LoadWeights(const WeightsConfig& weights, const ProgramDesc& program,
                          const std::vector<std::string>& names, Scope& scope);

// Options for generating text with a saved character model.

struct GenerateOptions {
  std::string prompt = "\n";  // one or more characters of the model's vocabulary
  int64_t length = 500;       // number of characters to generate
  // Scores are divided by the temperature before the softmax: below 1, likely characters become
  // likelier; 0 always chooses the likeliest.
  double temperature = 1;
  uint64_t seed = 1;  // the same seed gives the same text
  CompileOptions compile = {};
};

// Returns the text that follows the prompt. `model` was saved by a job with a text and `deploy`: a
// directory with model.pdmodel, model.pdiparams and vocabulary.json, or the .pdmodel file in it.
// The model's first input is characters [batch, time], its first output scores [batch, time,
// characters of the vocabulary]; each further output is fed back to a further input, in order.
// Throws Error for a model of another form, an invalid prompt, and options out of range.
std::string GenerateText(const std::string& model, const GenerateOptions& options);

// The program of GenerateText: the model's ops in a while loop that draws one character per round
// (sampling_id of softmax(scores / temperature), or arg_max if `greedy`) and continues from it.
// Feeds: `before` int64 [1, n], characters to read first; `last` int64 [1, 1], the character to
// continue from; `count` int64 [1], at most 256; `temperature` float32 [1]; then the states.
// Fetches: `text` int64 [256], whose first `count` elements are the characters; `id`, the `last` of
// the next run; then the states for it. Parameters have the same names as in the model.
struct GenerateProgram {
  std::shared_ptr<ProgramDesc> main;
  std::vector<std::string> feeds, fetches;
  std::vector<Tensor> states;  // the initial states, zeros
};
// Throws kUnimplemented for a model with sub-blocks.
GenerateProgram MakeGenerateProgram(const InferenceModel& model, bool greedy);

// Times of a model, measured for each layer.

struct TimeOptions {
  CompileOptions compile = {};  // sets its `profile`
  std::string loss = "loss";    // without this variable, only the forward ops are timed
  int64_t batch_size = 64;      // for unknown dimensions
  int64_t iterations = 50;
  int64_t warm_up = 3;              // untimed steps before
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
  // Shapes of inputs by name, without unknown dims; TimeJob ignores them. Other inputs have their
  // declared shapes.
  std::vector<std::pair<std::string, Shape>> shapes = {};
};

enum class StepPart { kForward, kBackward, kUpdate };

struct LayerTime {
  std::string layer;  // the name of its result, or of the layer if the result has none
  std::string ops;    // types of its forward ops
  std::string place;  // "lenet.pbtxt:7:9", or ""
  // Seconds of each step, by StepPart.
  std::array<std::vector<double>, 3> seconds;
  // Types of the ops that passes made of the layer: "conv2d" for a batch_norm.
  std::string run_by = {};
};

struct ModelTimes {
  std::vector<LayerTime> layers;  // in the order of the model; the last one is the rest
  LayerTime total;                // of all ops
  std::vector<double> steps;      // wall-clock seconds of whole steps
  int64_t batch_size = 0;
  int64_t batches = 1;  // per step
  // Whether one op updated the parameters of several layers. Its time was divided by their numbers
  // of elements.
  bool shared = false;
  // Whether passes fused several layers into one op. Its time was divided by their arithmetic.
  bool fused = false;
  std::string ToString() const;  // a table with p50, p90 and p99 in milliseconds
};

// Times a model on random data from DrawFeeds. If the model has the loss, a step includes backward
// and a momentum update of rate 0. Throws what the model's ops throw.
ModelTimes TimeModel(const BuiltModel& model, const TimeOptions& options);

// Times the unchanged training step of a job, with its optimizers, clips, precision, accumulation
// (a step is then iter_size batches) and batch size. Parameters change. Ignores loss and batch_size
// of `options`.
ModelTimes TimeJob(const JobConfig& job, const TimeOptions& options);

// Times the forward pass of a saved model with frozen parameters, as `coracle run` runs it. Ignores
// the loss of `options`. Throws what LoadInferenceModel throws.
ModelTimes TimeSavedModel(const std::string& path, const TimeOptions& options);

}  // namespace coracle
