#pragma once
// JobConfig: a training job. A program fills it in or reads it from a job text. `coracle schema
// job` prints the fields of a job text.

#include <coracle/backward/backward.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
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

// Lowers the rate when a value of the evaluations stops improving.
struct PlateauConfig {
  std::string metric = {};  // printed name of the loss or a metric; "": the loss
  PlateauRate::Options options = {};
  // For a plateau that is part of OptimizerConfig::schedule: the variable of its HeldRate, which
  // must hold the optimizer's rate, and the range of updates that use it. An evaluation counts if
  // the next update is in this range.
  std::string held = {};
  int64_t first = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
};

// A step of the job at which a schedule changes, with its place in the job text.
struct ScheduleMark {
  std::string place;
  std::string what;  // "the warm-up ends"
  int64_t step;
  // For the end of a schedule: what follows, such as "the rate stays".
  std::string then = "";
};

struct OptimizerConfig {
  OptimizerConfig() : OptimizerConfig(SgdOptions()) {}
  // Takes the options of a built-in optimizer: `job.optimizers = {AdamOptions{.beta1 = 0.5}}`.
  template <class Options>
  requires requires { typename Options::Makes; }
  OptimizerConfig(const Options& options)  // NOLINT: converts on purpose
      : make([options] { return std::make_unique<typename Options::Makes>(options); }) {}

  std::function<std::unique_ptr<Optimizer>()> make;
  Setting setting;                  // the part of a job text from which `make` was made
  std::vector<std::string> params;  // patterns of names, see MatchesPattern; empty: all
  // Patterns of the parameters to which neither the regularizer nor the optimizer's own
  // decay applies.
  std::vector<std::string> no_decay;
  LrSchedulePtr schedule;
  std::vector<ScheduleMark> schedule_marks;
  std::optional<PlateauConfig> plateau;  // the whole schedule, or a part of it: see `held`
  std::optional<Setting> gradient_clip;  // see Optimizer::SetGradientClip
  std::optional<Setting> regularizer;    // see Optimizer::SetRegularizer
  std::string place;                     // in the job text
};

// The reaction of a run to a step whose loss is nan or infinite.
enum class NonFiniteLoss {
  kStop,  // the run ends with an error
  kWarn,  // the run goes on and reports it
  kSkip,  // skips the update: parameters, optimizer state, schedule and averages stay
};

// The settings of a job's training step: optimizers and their parameters, gradient accumulation,
// averages of parameters, and what to do about losses that are not finite.
struct TrainingConfig {
  std::vector<OptimizerConfig> optimizers = {OptimizerConfig()};
  int64_t iter_size = 1;             // batches per update
  bool sum_gradients = false;        // adds their gradients instead of averaging them
  bool clip_before_average = false;  // clips the sum of the gradients (Caffe's order)
  // The averages replace the parameters in evaluations and in the deployed model.
  std::variant<std::monostate, ExponentialMovingAverageOptions, ModelAverageOptions> average = {};
  std::optional<LookaheadOptions> lookahead = {};
  NonFiniteLoss non_finite_loss = NonFiniteLoss::kStop;
  bool clip_statistics = true;  // counts what error clips and gradient clips do
};

// Holds out a random part of the rows, chosen by the seed: `test` and the test sets use this part,
// `train` uses the others.
struct SplitConfig {
  double holdout = 0.1;
  uint64_t seed = 1;
  bool operator==(const SplitConfig&) const = default;
};

enum class ClassBalance {
  kNone,
  kWeights,   // adds the column "weight" with BalancedWeights of the training data
  kSampling,  // MakeBalanced, in training
};

struct DataConfig {
  std::variant<std::monostate, DigitsOptions, IdxOptions, CsvOptions, NpzOptions, TextOptions,
               DatumOptions, PictureOptions>
      source = {};
  std::optional<TransformOptions> transform = {};  // its random_crop and seed are the job's
  std::optional<SplitConfig> split = {};
  std::vector<float> class_weight = {};  // if not empty: see MakeWeighted
  ClassBalance balance = ClassBalance::kNone;
  // See MakeMixed. The seed is the job's, and tests only get the column.
  std::optional<MixupOptions> mixup = {};
  bool like_train = false;    // of a job text, which then gives the fields of `train`
  int64_t first = 0;          // counted in the rows that the split leaves
  int64_t limit = 0;          // 0: all
  DataSourcePtr custom = {};  // used instead of `source` when set

  bool empty() const { return source.index() == 0 && !custom; }
};

struct BindConfig {
  std::string column = {};
  std::string var = {};
  std::string where = "";  // its place in a job text, for errors
};

// Feeds the value `from` of a batch to the next batch as `to`. The first batch of an epoch or of an
// evaluation gets zeros.
struct CarryConfig {
  std::string from = {};
  std::string to = {};
  std::string where = "";  // its place in a job text, for errors
};

// Kinds of metrics, which a job measures in addition to its loss.
enum class MetricKind {
  kMean,        // of a variable that holds one number, a mean over the batch
  kPerplexity,  // exp of kMean
  // The share of rows whose label is among the k largest scores (of equal scores the first). A nan
  // takes a place but is never right; nor is a negative label.
  kAccuracy,
  // The exact area under the ROC curve: the share of pairs of a row with label 1 and a row with
  // label 0 that are in the right order. Equal scores count as half; the area is nan if a score
  // is nan.
  kAuc,
  // Of the classes with the largest scores, over the whole test set: see MetricConfig::average.
  kPrecision,
  kRecall,
  kF1,
  // Of numbers and their labels, over the whole test set: the coefficient of determination (nan for
  // constant labels), the mean absolute error, and the root of the mean squared error.
  kR2,
  kMae,
  kRmse,
  // The counts of labels and answers, in evaluations only: no number, but a matrix.
  kConfusion,
};

// How the values of several classes become one. Classes without labels and answers do not count.
enum class MetricAverage {
  kMacro,     // the mean over the classes
  kMicro,     // of the sums of their counts
  kWeighted,  // the mean, weighted by the rows with their labels
};

struct MetricConfig {
  std::string var = {};   // a number, or scores for kinds that compare them with labels
  std::string name = {};  // as printed
  MetricKind kind = MetricKind::kMean;
  // For all kinds but the mean and perplexity: a variable with one label per row, an integer for
  // scores and a real number for kR2, kMae and kRmse.
  std::string label = "";
  int64_t k = 1;                                  // for accuracy
  MetricAverage average = MetricAverage::kMacro;  // for precision, recall and F1
  // What 1 of kMae and kRmse is in the label's own unit. A run sets it if its labels are scaled.
  double unit = 1;
};

// A test set: separate data for evaluations.
struct TestSetConfig {
  std::string name = "test";  // as printed; different for each set
  DataConfig data = {};
  int64_t batch_size = 0;                // 0: the job's test_batch_size
  int64_t iterations = 0;                // number of batches per evaluation; 0: all
  std::vector<std::string> stages = {};  // stages of its program: see ModelState
  std::string where = "test";            // its field in the job: see JobConfig::Place
};

// Whether a smaller or a larger value of the metric is better; kAuto: see GoalOf.
enum class WatchGoal { kAuto, kMinimize, kMaximize };
struct WatchConfig {
  std::string metric = {};  // printed name of the loss or a metric; "SET/NAME" of a test set
  WatchGoal goal = WatchGoal::kAuto;
  double min_delta = 0;  // an improvement must be larger than this
};
// Keeps the snapshot of the best evaluation, even if it is old.
struct BestConfig {
  WatchConfig watch = {};
  bool restore = false;  // the job ends with the parameters of that snapshot
};
// Ends the job after `patience` evaluations in a row without an improvement.
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

// Initial values of parameters (and of other persistable variables of the model) for a fresh run,
// by name.
struct WeightsConfig {
  // A snapshot (or a directory of them), a saved model, or a file of parameters.
  std::string file = {};
  // A variable of another shape keeps its initial value; else an error.
  bool skip_mismatched = false;
  // Used instead of reading `file`, which is then only a name.
  std::function<NamedTensors()> read = {};
};

struct LogConfig {
  bool json = true;                // OUTPUT_DIR/log.jsonl
  bool tensorboard = false;        // OUTPUT_DIR/events.out.tfevents.*
  int64_t histogram_interval = 0;  // steps between histograms of parameters and gradients; 0: none
};

// Decorates the model with `options` before training. Scales the loss during training if `scaling`
// is set. Loss and metrics stay float32.
struct PrecisionConfig {
  MixedPrecisionOptions options = {};
  std::optional<GradScalerOptions> scaling = {};
};

// Trains with rounding, for inference in integers of 8 bits. In the steps before `start_step` the
// model computes in floating point and ranges are observed; from `freeze_step` on (0: never),
// ranges and statistics of norms stay as they are.
struct QuantizeConfig {
  QuantizeTrainingOptions options = {};
  int64_t start_step = 0;
  int64_t freeze_step = 0;

  // The phase of the step that follows `steps` steps.
  QuantizePhase PhaseAfter(int64_t steps) const;
  // Whether an evaluation after `steps` steps computes in floating point.
  bool EvaluatesInFloat(int64_t steps) const { return steps <= start_step; }
};

// Settings for several ranks; see AllReduceOptions.
struct DistributeConfig {
  double bucket_mb = 25;
  bool sync_batch_norm = false;
  bool shard_state = false;
  std::string loss_weight = {};
};

struct JobConfig {
  std::string name = "job";
  std::string model = {};       // file of model text; relative to `directory`
  std::string model_text = {};  // the text itself, when `model` is ""
  DataConfig train = {}, test = {};
  std::vector<BindConfig> bind = {};
  std::vector<CarryConfig> carry = {};  // requires `shuffle` off
  std::string loss = "loss";
  std::string loss_name = "loss";  // as printed
  std::vector<MetricConfig> metrics = {};
  TrainingConfig training = {};
  std::vector<TestSetConfig> test_sets = {};  // in addition to `test`
  std::vector<std::string> stages = {};       // stages of the training program: see ModelState
  std::vector<std::string> deploy_stages = {};

  int64_t batch_size = 64;
  int64_t test_batch_size = 0;  // 0: batch_size
  int64_t max_iter = 0;         // 0: no limit
  int64_t epochs = 0;           // 0: no limit
  int64_t test_interval = 0;    // steps; 0: each epoch
  int64_t test_iterations = 0;  // batches of `test` per evaluation; 0: all
  bool initial_test = false;    // evaluates before the first step
  int64_t display = 100;
  // The displayed loss is the mean over the rows of the last `average_loss` steps; 0: of the steps
  // since the last display.
  int64_t average_loss = 0;
  int64_t snapshot_interval = 0;
  int64_t keep_snapshots = 3;
  bool snapshot_after_train = true;
  std::optional<BestConfig> best = {};
  std::optional<EarlyStopConfig> early_stop = {};
  SignalConfig signals = {};
  double max_seconds = 0;  // after this time, the run saves a snapshot and stops; 0: no limit
  std::vector<WeightsConfig> weights = {};
  // RE2 patterns of the whole names of the parameters to freeze.
  std::vector<std::string> freeze = {};
  bool debug_info = false;  // reports mean |x| of every activation, gradient and parameter
  LogConfig log = {};
  uint64_t random_seed = 1;
  bool shuffle = true;
  bool drop_last = false;
  bool prefetch = true;

  DistributeConfig distribute = {};
  RecomputeOptions recompute = {};  // its batch_size is the job's
  std::optional<PrecisionConfig> mixed_precision = {};
  std::optional<QuantizeConfig> quantize = {};

  std::vector<std::string> deploy_inputs = {}, deploy_outputs = {};

  std::string output_dir = {};    // "": the job writes no files except snapshots
  std::string snapshot_dir = {};  // "": "snapshots" in output_dir; without either, no snapshots
  std::string directory = ".";    // base of relative names of `model` and of data files
  std::string data_dir = {};      // if set, base of relative names of data files
  std::string source = "job";     // file name for errors
  std::string text = {};          // the job text, which snapshots keep
  std::vector<std::string> settings = {};  // what the command line set in the text: "epochs=3"
  // For a job text: the place (file:line:column) of each field by its path, such as
  // "train.csv.file" and "metric[0].var". The path "" is the beginning of the text.
  std::map<std::string, std::string> places = {};

  // The place of a field, for errors. Returns the beginning of the text if the text does not have
  // the field, and `source` without a text.
  const std::string& Place(const std::string& field) const;
  std::string SnapshotDirectory() const;  // "" when there is none
  // All test sets: `test`, if it is given, as the set "test", followed by test_sets.
  std::vector<TestSetConfig> TestSets() const;
  // The path of a data file named in the job, relative to data_dir or to the job's directory.
  std::string DataPath(const std::string& file) const;
  // The path of a file named in the job, relative to the job's directory.
  std::string FilePath(const std::string& file) const;
};

// Parses a job text. Errors give source:line:column and the nearest known name.
JobConfig ParseJobText(std::string_view text, const std::string& source = "job",
                       const std::string& directory = ".");
JobConfig ReadJob(const std::string& path);
// The schema of job text as a .proto file, with the kinds registered by users.
std::string JobSchema();
// Describes the fields of an optimizer, schedule, gradient clip, regularizer or average, or of a
// field such as "warmup" and "lookahead". Returns "" for an unknown name.
std::string DescribeJobKind(const std::string& name);
std::vector<std::string> JobKindNames();  // the names known to DescribeJobKind
// Whether a text is a job and not a model: the first field other than its name is a field of a job.
// Does not throw.
bool LooksLikeJob(std::string_view text);

// The goal of a watched metric. kAuto stands for kMaximize if the job's metric of that name has the
// kind kAccuracy or kAuc, or if the name is "accuracy", "acc" or "auc"; else for kMinimize.
WatchGoal GoalOf(const JobConfig& config, const WatchConfig& watch);

// Returns "output/NAME". Throws kInvalidArgument for a name that would lead out of "output".
std::string DefaultOutputDirectory(const JobConfig& config);

// Throws kInvalidArgument for numbers out of range, a job without an end, a missing loss and
// other errors.
void CheckJob(const JobConfig& config);

// Opens the data of a job. Synthetic digits for training and for tests differ, whatever the seeds.
DataSourcePtr OpenTrainData(const JobConfig& config);
// Tests use the means, vocabularies and classes that were computed from the training data: from
// `train`, what OpenTrainData returned, which is opened here if it is null and needed.
DataSourcePtr OpenTestData(const JobConfig& config, const TestSetConfig& set,
                           const DataSource* train = nullptr);

}  // namespace coracle
