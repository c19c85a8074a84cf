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

// What a run will do, reported before its first step.
struct TrainPlan {
  std::string job;
  std::string data;        // description of the training data
  int64_t first_step = 0;  // steps done before (0 unless resumed)
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;
  int64_t parameters = 0;  // trainable numbers
  std::string loss_name = "loss";
  std::vector<std::string> metric_names;
  std::string resumed_from;  // path of the snapshot; "" for a fresh start
  std::string note;          // a message for the user, or ""
};

// What one gradient clip, or the error clip of one variable, did since the last display.
struct ClipReport {
  enum class Kind { kGradient, kError };
  Kind kind = Kind::kGradient;
  std::string name;   // group, parameter or kind of a gradient clip; or the variable
  int64_t times = 0;  // gradients seen; for a gradient clip, updates
  int64_t acted = 0;  // how often it changed a gradient
  double factor = 1;  // the smallest factor by which it multiplied a norm
  double norm = 0;    // for clips by norm: the largest norm that it clipped, and its limit
  double limit = 0;
};

struct StepReport {
  const TrainPlan& plan;
  int64_t step;   // steps done, this one included
  int64_t epoch;  // of this step, counted from 0
  int64_t rows;   // of its batch, on all ranks
  double loss;
  StepWindow& window;
  // This is a step to report: a multiple of the job's `display`, or the last.
  bool show;
  // Optimizers' rates at this step, by their variables; known when `show`.
  const std::vector<NamedValue>& learning_rates;
  const std::vector<ClipReport>& clips;  // since the last display; known when `show`
  // By rank: the share of the time since the last display that it has waited for exchanges and for
  // other ranks; known when `show`. Empty for one rank.
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
  int64_t epoch;  // of the last step
  int64_t rows;
  std::vector<NamedValue> values;  // the loss, then the metrics, by their printed names
  bool best = false;               // the watched value is better than ever before
  bool restored = false;           // the last one of a run, made with the best parameters
};

// All optional. References are valid during the call only.
struct TrainCallbacks {
  std::function<void(const TrainPlan&)> on_start = {};
  std::function<void(const StepReport&)> on_step = {};
  std::function<void(const EvalReport&)> on_eval = {};
  std::function<void(const std::string& path)> on_snapshot = {};
  // Lines for the user: warnings, which weights were loaded, debug_info.
  std::function<void(const std::string& line)> on_message = {};
  // Called after each step, after each batch of an evaluation, and in loops of an evaluated
  // program; true: save a snapshot and return.
  std::function<bool()> stop = {};
  std::function<bool()> save = {};  // called after each step; true: save a snapshot and go on
};

struct TrainOptions {
  CompileOptions compile = {};
  bool resume = false;
  // Remove the files of another run from the job's directories before the first step. Otherwise
  // such files are an error (kAlreadyExists), unless that run is the one to resume.
  bool overwrite = false;
  // A snapshot, or a directory of snapshots; kNotFound if there is none. "": the job's directory;
  // if there is none, the run starts from the beginning.
  std::string resume_from = {};
  // Resume from a snapshot that does not match the job: differences are reported, matching
  // variables are loaded, and the epoch starts again if the data differs.
  bool override_mismatch = false;
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
  // Where several ranks train together, this one's end (RunJob is called on each of them, with the
  // same job). Each takes its rows of every batch (RowsOfRank); rank 0 alone calls the callbacks,
  // but for stop and save, and writes files. Snapshots are read by all: they must lie where every
  // rank finds them.
  std::shared_ptr<Communicator> communicator = {};
  // Steps between comparisons of the ranks' parameters, which are equal; 0: none.
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
  std::string metric;  // "" before the first
  double value = 0;
  int64_t step = 0;
  // The best of the evaluations that a longer run makes too, which early_stop goes by, and how many
  // of them were since then.
  std::optional<double> counted = std::nullopt;
  int64_t worse = 0;
  std::string counted_metric = {};  // what they are of; "" before the first
};

struct TrainResult {
  bool stopped = false;  // by the `stop` callback, or by max_seconds
  bool time_up = false;  // by max_seconds
  int64_t steps = 0;     // done, of all runs
  // From the last evaluation of the first test set; without test data, means over the
  // last steps shown.
  double loss = 0;
  std::vector<NamedValue> metrics;
  std::vector<EvaluationRecord> evaluations;  // the last of each test set
  BestRecord best;
  // Steps of all runs whose loss was a nan or infinite, see NonFiniteLoss.
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

// Throws Error for any problem of the job, its model, data or snapshot. Also throws if the loss or
// a parameter becomes a nan or infinite, unless the job says otherwise (see NonFiniteLoss).
TrainResult RunJob(const JobConfig& config, const TrainOptions& options = {},
                   const TrainCallbacks& callbacks = {});

struct EvaluateOptions {
  std::string test_set = {};  // of the job, by its name; "": the first
  CompileOptions compile = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// Evaluates a saved inference model (see LoadInferenceModel) on a test set of a job (as many
// batches as its `iterations` say), or on its training data when it has no test set. Throws
// kNotFound for a test_set that the job does not have. For a model that has the job's loss, the
// result is the loss and the job's metrics. For any other model, a fetch of one number is averaged
// over the rows, and a fetch of shape [rows, classes] gives "accuracy": how often the largest score
// is the label's. With compile.profile, `profile` gets the table of times.
std::vector<NamedValue> EvaluateSavedModel(const std::string& path, const JobConfig& job,
                                           const EvaluateOptions& options = {},
                                           std::string* profile = nullptr);

// Loading of values for a model's variables, by name, from a file of another run.

struct WeightsReport {
  std::string file;
  std::vector<std::string> loaded;
  std::vector<std::string> mismatched;    // with another shape or dtype in the file
  std::vector<std::string> not_in_file;   // these keep their values
  std::vector<std::string> not_in_model;  // of the file

  // "weights FILE: 6 of 8 variables loaded; not in the file: ...; not in the model: ...".
  std::string ToString() const;
};

// Copies the values of `names`, persistable variables of `program`, into `scope`. The file of
// `weights` is a snapshot or a directory of them (its optimizer's state is ignored), a saved model
// (.pdmodel or .pdiparams file, prefix or directory), or an archive. Throws kInvalidArgument if
// nothing matches, and for a variable of another shape or dtype unless `skip_mismatched`.
WeightsReport LoadWeights(const WeightsConfig& weights, const ProgramDesc& program,
                          const std::vector<std::string>& names, Scope& scope);

// New text from a saved character model.

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
  int64_t warm_up = 3;              // untimed steps before
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
  // Of inputs by name, all dims known; TimeJob ignores them. Others are as their variables are
  // declared.
  std::vector<std::pair<std::string, Shape>> shapes = {};
};

enum class StepPart { kForward, kBackward, kUpdate };

struct LayerTime {
  std::string layer;  // the name of its result, or of the layer if the result has none
  std::string ops;    // types of its forward ops
  std::string place;  // "lenet.pbtxt:7:9", or ""
  // Seconds in each step, by StepPart.
  std::array<std::vector<double>, 3> seconds;
  std::string run_by = {};  // types of the ops that passes made of them: "conv2d" for a batch_norm
};

struct ModelTimes {
  std::vector<LayerTime> layers;  // in the order of the model; the last one is the rest
  LayerTime total;                // of all ops
  std::vector<double> steps;      // wall-clock seconds of whole steps
  int64_t batch_size = 0;
  int64_t batches = 1;  // in one step
  // Whether an op updated the parameters of several layers; its time was divided in proportion to
  // their elements.
  bool shared = false;
  // Whether passes made one op of several layers; its time was divided by their arithmetic.
  bool fused = false;
  std::string ToString() const;  // a table with p50, p90 and p99 in milliseconds
};

// Runs the model on data that DrawFeed draws; if it has the loss, with backward and a momentum
// update of rate 0. Throws what the model's ops throw.
ModelTimes TimeModel(const BuiltModel& model, const TimeOptions& options);

// The same for the unchanged training step of a job, with its optimizers, clips, precision,
// accumulation (a step is then iter_size batches) and batch size. Parameters change. Ignores loss
// and batch_size of `options`.
ModelTimes TimeJob(const JobConfig& job, const TimeOptions& options);

// The same for the forward pass of a saved model with frozen parameters, as `coracle run` runs it.
// Ignores loss of `options`. Throws what LoadInferenceModel throws.
ModelTimes TimeSavedModel(const std::string& path, const TimeOptions& options);

}  // namespace coracle
