#pragma once
// JobConfig: a training job. A program fills it in, or reads it from a job text (`coracle schema
// job` prints what such a text may say).

#include <coracle/backward/backward.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/optimizer/optimizers.h>
#include <coracle/train/data/data_source.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace coracle {

// TrainingConfig: what a job says of its training step: optimizers and their parameters, gradient
// accumulation, averages of parameters, losses that are not finite.

// The rate falls when a value of the evaluations stops improving.
struct PlateauConfig {
  std::string metric = {};  // printed name of the loss or a metric; "": the loss
  PlateauRate::Options options = {};
  // Of a plateau that is a part of OptimizerConfig::schedule: the variable of its HeldRate, which
  // must hold the optimizer's rate, and the updates that take it. Evaluations count where the next
  // update is one of these.
  std::string held = {};
  int64_t first = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
};

// A step of the job at which a schedule does something, by its place in the job text.
struct ScheduleMark {
  std::string place;
  std::string what;  // "the warm-up ends"
  int64_t step;
  std::string then = "";  // of a schedule's end what follows: "the rate stays"
};

struct OptimizerConfig {
  OptimizerConfig() : OptimizerConfig(SgdOptions()) {}
  // From the options of a built-in optimizer: `job.optimizers = {AdamOptions{.beta1 = 0.5}}`.
  template <class Options>
  requires requires { typename Options::Makes; }
  OptimizerConfig(const Options& options)  // NOLINT: converts on purpose
      : make([options] { return std::make_unique<typename Options::Makes>(options); }) {}

  std::function<std::unique_ptr<Optimizer>()> make;
  Setting setting;                    // of a job text: what `make` makes
  std::vector<std::string> params;    // patterns of names, see MatchesPattern; empty: all
  std::vector<std::string> no_decay;  // patterns: neither the regularizer nor a decay of the
                                      // optimizer's own acts on these
  LrSchedulePtr schedule;
  std::vector<ScheduleMark> schedule_marks;
  std::optional<PlateauConfig> plateau;  // the whole schedule, or a part of it: see `held`
  std::optional<Setting> gradient_clip;  // see Optimizer::SetGradientClip
  std::optional<Setting> regularizer;    // see Optimizer::SetRegularizer
  std::string place;                     // in the job text
};

// What a run does at a step whose loss is a nan or infinite.
enum class NonFiniteLoss {
  kStop,  // ends with an error
  kWarn,  // goes on and tells
  kSkip,  // leaves the update out: parameters, optimizer state, schedule and averages stay
};

struct TrainingConfig {
  std::vector<OptimizerConfig> optimizers = {OptimizerConfig()};
  int64_t iter_size = 1;             // batches whose gradients make one update
  bool sum_gradients = false;        // their sum instead of their mean
  bool clip_before_average = false;  // the clip sees the sum (Caffe's order)
  // Evaluated and deployed in place of the parameters.
  std::variant<std::monostate, ExponentialMovingAverageOptions, ModelAverageOptions> average = {};
  std::optional<LookaheadOptions> lookahead = {};
  NonFiniteLoss non_finite_loss = NonFiniteLoss::kStop;
  bool clip_statistics = true;  // what error clips and gradient clips do is counted
};

// A random part of the rows, drawn by the seed, is held out: `train` has the others, `test` and the
// test sets have these.
struct SplitConfig {
  double holdout = 0.1;
  uint64_t seed = 1;
  bool operator==(const SplitConfig&) const = default;
};

struct DataConfig {
  std::variant<std::monostate, DigitsOptions, IdxOptions, CsvOptions, NpzOptions, TextOptions,
               DatumOptions>
      source = {};
  std::optional<TransformOptions> transform = {};  // its random_crop and seed are the job's
  std::optional<SplitConfig> split = {};
  int64_t first = 0;          // of what the split leaves
  int64_t limit = 0;          // 0: all
  DataSourcePtr custom = {};  // used instead of `source` when set

  bool empty() const { return source.index() == 0 && !custom; }
};

struct BindConfig {
  std::string column = {};
  std::string var = {};
  std::string where = "";  // its place in a job text, for errors
};

// What a batch computes as `from` is fed to the next as `to`; zeros at the beginning of an epoch
// and of an evaluation.
struct CarryConfig {
  std::string from = {};
  std::string to = {};
  std::string where = "";  // its place in a job text, for errors
};

// What a job measures beside its loss.
enum class MetricKind {
  kMean,        // of a variable that holds one number, a mean over the batch
  kPerplexity,  // exp of that
  kAccuracy,    // share of rows whose label is among the k largest scores (of equals the first; a
                // nan takes a place but is never right, nor is a negative label)
  kAuc,         // area under the ROC curve, exact: the share of pairs of a row labelled 1 and one
                // labelled 0 that are in the right order, equal scores counting half; nan when
                // a score is
};

struct MetricConfig {
  std::string var = {};   // a number, or (for accuracy and auc) scores
  std::string name = {};  // as printed
  MetricKind kind = MetricKind::kMean;
  std::string label = "";  // of accuracy and auc: an integer variable, one per row of the scores
  int64_t k = 1;           // of accuracy
};

// A result by its printed name.
struct NamedValue {
  std::string name;
  double value = 0;
};

// Data of its own that the job is evaluated on.
struct TestSetConfig {
  std::string name = "test";  // as printed; no two sets have the same
  DataConfig data = {};
  int64_t batch_size = 0;                // 0: the job's test_batch_size
  int64_t iterations = 0;                // batches of one evaluation, from the first on; 0: all
  std::vector<std::string> stages = {};  // of its program: see ModelState
  std::string where = "test";            // its field in the job: see JobConfig::Place
};

// Which value of an evaluation tells how good the model is.
enum class WatchGoal { kMinimize, kMaximize };
struct WatchConfig {
  std::string metric = {};  // printed name of the loss or a metric; "SET/NAME" of a test set
  WatchGoal goal = WatchGoal::kMinimize;
  double min_delta = 0;  // an improvement is larger than this
};
// The snapshot of the best evaluation is kept, whatever keep_snapshots says.
struct BestConfig {
  WatchConfig watch = {};
  bool restore = false;  // the job ends with its parameters
};
// The job ends when so many evaluations in a row brought no improvement.
struct EarlyStopConfig {
  WatchConfig watch = {};
  int64_t patience = 10;
};

enum class SignalEffect { kNone, kStop, kSnapshot };
struct SignalConfig {
  SignalEffect interrupt = SignalEffect::kStop;   // SIGINT: Ctrl-C
  SignalEffect terminate = SignalEffect::kStop;   // SIGTERM
  SignalEffect hangup = SignalEffect::kSnapshot;  // SIGHUP
};

// Values for parameters (and other persistable variables of the model) at the beginning of a fresh
// run, by name.
struct WeightsConfig {
  std::string file = {};  // a snapshot (or a directory of them), a saved model, file of parameters
  bool skip_mismatched = false;  // what has another shape keeps its initial value; else an error
  std::function<NamedTensors()> read = {};  // in place of reading the file, which is a name then
};

struct LogConfig {
  bool json = true;                // OUTPUT_DIR/log.jsonl
  bool tensorboard = false;        // OUTPUT_DIR/events.out.tfevents.*
  int64_t histogram_interval = 0;  // steps between histograms of parameters and gradients; 0: none
};

// Before training: the model is decorated with `options`; during it: the loss is scaled, where
// `scaling` is set. Loss and metrics stay float32.
struct PrecisionConfig {
  MixedPrecisionOptions options = {};
  std::optional<GradScalerOptions> scaling = {};
};

// Of several ranks; see AllReduceOptions.
struct DistributeConfig {
  double bucket_mb = 25;
  bool sync_batch_norm = false;
  bool shard_state = false;
  int64_t local_sgd_steps = 0;
};

struct JobConfig {
  std::string name = "job";
  std::string model = {};       // file of model text; relative to `directory`
  std::string model_text = {};  // the text itself, when `model` is ""
  DataConfig train = {}, test = {};
  std::vector<BindConfig> bind = {};
  std::vector<CarryConfig> carry = {};  // wants `shuffle` off
  std::string loss = "loss";
  std::string loss_name = "loss";  // as printed
  std::vector<MetricConfig> metrics = {};
  TrainingConfig training = {};
  std::vector<TestSetConfig> test_sets = {};  // beside `test`
  std::vector<std::string> stages = {};       // of the training program: see ModelState
  std::vector<std::string> deploy_stages = {};

  int64_t batch_size = 64;
  int64_t test_batch_size = 0;  // 0: batch_size
  int64_t max_iter = 0;         // 0: no limit
  int64_t epochs = 0;           // 0: no limit
  int64_t test_interval = 0;    // steps; 0: each epoch
  int64_t test_iterations = 0;  // batches of `test` in an evaluation; 0: all
  bool initial_test = false;    // an evaluation before the first step
  int64_t display = 100;
  // The loss that is shown is the mean over the rows of the last so many steps; 0: of those since
  // it was last shown.
  int64_t average_loss = 0;
  int64_t snapshot_interval = 0;
  int64_t keep_snapshots = 3;
  bool snapshot_after_train = true;
  std::optional<BestConfig> best = {};
  std::optional<EarlyStopConfig> early_stop = {};
  SignalConfig signals = {};
  double max_seconds = 0;  // the run saves and stops when so much time has passed; 0: no limit
  std::vector<WeightsConfig> weights = {};
  std::vector<std::string> freeze =
      {};                   // RE2 patterns of whole names of the parameters that do not change
  bool debug_info = false;  // mean |x| of every activation, gradient and parameter is told
  LogConfig log = {};
  uint64_t random_seed = 1;
  bool shuffle = true;
  bool drop_last = false;
  bool prefetch = true;

  DistributeConfig distribute = {};
  RecomputeOptions recompute = {};  // its batch_size is the job's
  std::optional<PrecisionConfig> mixed_precision = {};

  std::vector<std::string> deploy_inputs = {}, deploy_outputs = {};

  std::string output_dir = {};    // "": the job writes no files but its snapshots
  std::string snapshot_dir = {};  // "": "snapshots" in output_dir; with neither, no snapshots
  std::string directory = ".";    // relative names of `model` and data files begin here
  std::string data_dir = {};      // relative data files begin here instead, when set
  std::string source = "job";     // file name in errors
  std::string text = {};          // the job text, kept in snapshots
  // Of a job text: the place (file:line:column) of each field by its path, such as "train.csv.file"
  // and "metric[0].var"; "" is its beginning.
  std::map<std::string, std::string> places = {};

  // The place of a field for errors: where the text begins when it does not give it, `source`
  // without a text.
  const std::string& Place(const std::string& field) const;
  std::string SnapshotDirectory() const;  // "" when there is none
  // `test`, if it is given, as the set "test", and test_sets.
  std::vector<TestSetConfig> TestSets() const;
  // A file that the job names, from the job's directory on.
  std::string FilePath(const std::string& file) const;
};

// Job text. Errors say source:line:column and the nearest known name.
JobConfig ParseJobText(std::string_view text, const std::string& source = "job",
                       const std::string& directory = ".");
JobConfig ReadJob(const std::string& path);
// The schema of job text as a .proto file, with the kinds that users registered.
std::string JobSchema();
// What job text may say of an optimizer, schedule, gradient clip, regularizer or average, or of a
// field such as "warmup" and "lookahead"; "" when there is none of that name.
std::string DescribeJobKind(const std::string& name);
std::vector<std::string> JobKindNames();  // what DescribeJobKind knows
// Whether the first field of a text, but for its name, is one of a job's: no model text.
// Does not throw.
bool LooksLikeJob(std::string_view text);

// "output/NAME". Throws kInvalidArgument for a name that would lead out of that directory.
std::string DefaultOutputDirectory(const JobConfig& config);

// Throws kInvalidArgument for numbers out of range, a job without end, a missing loss and the like.
void CheckJob(const JobConfig& config);

// Opens the data of a job. Drawn digits differ between the two splits, whatever the seeds.
DataSourcePtr OpenTrainData(const JobConfig& config);
DataSourcePtr OpenTestData(const JobConfig& config, const TestSetConfig& set);

}  // namespace coracle
