#include <coracle/framework/base/error.h>
#include <coracle/framework/ir/field_places.h>
#include <coracle/optimizer/option_fields.h>
#include <coracle/train/job/data_fields.h>
#include <coracle/train/job/job_fields.h>
#include <fmt/format.h>

#include <limits>

namespace coracle {
namespace {

using Example = FieldExample;
using Number = FieldNumber;

constexpr double kMostSteps = 1'000'000;  // of fields that are multiplied, or size allocations

bool HasAverage(MetricKind kind) {
  return kind == MetricKind::kPrecision || kind == MetricKind::kRecall || kind == MetricKind::kF1;
}

// --- results ---

OneOf MetricKinds() {
  return {"MetricConfig.Kind",
          {{"MEAN", MetricKind::kMean, "var holds one number, a mean over the batch"},
           {"PERPLEXITY", MetricKind::kPerplexity, "exp of the mean of such a number"},
           {"ACCURACY", MetricKind::kAccuracy,
            "share of rows whose label is among the k largest scores, var"},
           {"AUC", MetricKind::kAuc,
            "exact area under the ROC curve of two classes: scores var, labels 0 and 1"},
           {"PRECISION", MetricKind::kPrecision,
            "share of the rows answered as a class, by the largest score in var, that have its "
            "label"},
           {"RECALL", MetricKind::kRecall, "share of the rows of a class that are answered as it"},
           {"F1", MetricKind::kF1, "harmonic mean of the two"},
           {"R2", MetricKind::kR2, "1 - squared errors / squared deviations of the labels"},
           {"MAE", MetricKind::kMae, "mean absolute error of the numbers var"},
           {"RMSE", MetricKind::kRmse, "root of their mean squared error"},
           {"CONFUSION", MetricKind::kConfusion,
            "no number, but a matrix: how often rows of each label are answered as each class, by "
            "the largest score in var; of test sets"}}};
}

void FinishMetric(MetricConfig& metric, const FieldPlaces& given) {
  const std::string kind = MetricKinds().values[static_cast<size_t>(metric.kind)].name;
  const bool compares = ComparesScores(metric.kind) || ComparesNumbers(metric.kind);
  if (compares && !given.Has("label")) given.Fail("kind", kind + " needs label");
  if (!compares && given.Has("label")) given.Fail("label", "is not of the kind " + kind);
  if (given.Has("average") && !HasAverage(metric.kind))
    given.Fail("average", "is not of the kind " + kind);
  if (given.Has("k") && metric.kind != MetricKind::kAccuracy)
    given.Fail("k", "is not of the kind " + kind);
  if (!given.Has("name")) metric.name = metric.var;
}

Fields<MetricConfig> MetricFields() {
  using O = MetricConfig;
  return Fields<O>("")
      .Message("MetricConfig")
      .Add("var", &O::var, "What is measured", kRequired, Example{"var: \"error\""})
      .Add("name", &O::name, "As printed; default: var", Example{"name: \"error\""})
      .Add("kind", &O::kind, "What is computed", Number{40}, MetricKinds())
      .Add("label", &O::label,
           "Of kinds from ACCURACY to F1, and CONFUSION: one integer per row; of R2, MAE and RMSE: "
           "one number. MAE and RMSE of labels that are scaled are in the label's own unit",
           Example{"kind: ACCURACY label: \"label\""})
      .Add("k", &O::k, "Of ACCURACY", RangeFrom(1), Example{"kind: ACCURACY label: \"label\" k: 5"})
      .Add("average", &O::average, "Of PRECISION, RECALL and F1",
           OneOf{"MetricConfig.Average",
                 {{"MACRO", MetricAverage::kMacro, "the mean over classes with labels or answers"},
                  {"MICRO", MetricAverage::kMicro, "of the counts of all classes together"},
                  {"WEIGHTED", MetricAverage::kWeighted,
                   "the mean over classes, weighted by their rows"}}},
           Example{"kind: F1 label: \"label\" average: WEIGHTED"})
      .Rule(FinishMetric);
}

Fields<WatchConfig> WatchFields() {
  using O = WatchConfig;
  return Fields<O>("")
      .Add("metric", &O::metric, "Printed name, or \"SET/NAME\"; default: the loss",
           Example{"metric: \"loss\""})
      .Add("goal", &O::goal, "Which values are better",
           OneOf{"Goal",
                 {{"AUTO", WatchGoal::kAuto,
                   "MAXIMIZE for metrics of the kinds ACCURACY to R2 and those called so, else "
                   "MINIMIZE"},
                  {"MINIMIZE", WatchGoal::kMinimize},
                  {"MAXIMIZE", WatchGoal::kMaximize}}})
      .Add("min_delta", &O::min_delta, "An improvement is larger than this", NotNegativeRange());
}

Fields<BestConfig> BestFields() {
  return Fields<BestConfig>(
             "The snapshot of the best evaluation is kept, and the file BEST next to the snapshots "
             "names it.")
      .Message("BestConfig")
      .Inline(&BestConfig::watch, WatchFields())
      .Add("restore", &BestConfig::restore, "the job ends with the best parameters");
}

Fields<EarlyStopConfig> EarlyStopFields() {
  return Fields<EarlyStopConfig>(
             "The job ends after `patience` evaluations without an improvement. With `best` its "
             "metric is watched; fields that are also given here must be the same.")
      .Message("EarlyStopConfig")
      .Add("patience", &EarlyStopConfig::patience, "Evaluations to wait for an improvement",
           RangeFrom(1))
      .Inline(&EarlyStopConfig::watch, WatchFields());
}

void FinishWatches(JobConfig& job, const FieldPlaces& given) {
  if (job.best) job.best->watch.goal = GoalOf(job, job.best->watch);
  if (!job.early_stop) return;
  WatchConfig& own = job.early_stop->watch;
  own.goal = GoalOf(job, own);
  if (!job.best) return;
  const WatchConfig& best = job.best->watch;
  const auto refuse = [&](const char* field, bool differs) {
    if (!given.Has(field) || !differs) return;
    given.Fail(field, "is not that of best, which early_stop watches too; leave it out here");
  };
  refuse("early_stop.metric", own.metric != best.metric);
  refuse("early_stop.goal", own.goal != best.goal);
  refuse("early_stop.min_delta", own.min_delta != best.min_delta);
}

// --- the run ---

Fields<SignalConfig> SignalFields() {
  using O = SignalConfig;
  const OneOf effect = {
      "SignalConfig.Effect",
      {{"NONE", SignalEffect::kNone, "as if the run did not see it"},
       {"STOP", SignalEffect::kStop, "a snapshot, then the end"},
       {"SNAPSHOT", SignalEffect::kSnapshot, "a snapshot, and the run continues"}}};
  return Fields<O>("")
      .Message("SignalConfig")
      .Add("sigint", &O::interrupt, "Ctrl-C", effect)
      .Add("sigterm", &O::terminate, "What SIGTERM does", effect)
      .Add("sighup", &O::hangup, "What SIGHUP does", effect);
}

Fields<WeightsConfig> WeightsFields() {
  using O = WeightsConfig;
  return Fields<O>("")
      .Message("WeightsConfig")
      .Add("file", &O::file, "A snapshot, a saved model, its .pdiparams, an .npz or .safetensors",
           kRequired, Example{"file: \"lenet.pdiparams\""})
      .Add("skip_mismatched", &O::skip_mismatched, "Else another shape is an error");
}

Fields<LogConfig> LogFields() {
  using O = LogConfig;
  return Fields<O>("")
      .Message("LogConfig")
      .Add("json", &O::json, "OUTPUT_DIR/log.jsonl")
      .Add("tensorboard", &O::tensorboard, "OUTPUT_DIR/events.out.tfevents.*")
      .Add("histogram_interval", &O::histogram_interval,
           "Steps between histograms of parameters and gradients for TensorBoard; 0: none",
           RangeFrom(0), Example{"tensorboard: true histogram_interval: 100"})
      .Rule([](O& log, const FieldPlaces& given) {
        if (log.histogram_interval > 0 && !log.tensorboard)
          given.Fail("histogram_interval", "needs tensorboard: true");
      });
}

Fields<DistributeConfig> DistributeFields() {
  using O = DistributeConfig;
  return Fields<O>("")
      .Message("DistributeConfig")
      .Add("bucket_mb", &O::bucket_mb,
           "Gradients are exchanged in groups of up to this many million bytes, in the order in "
           "which backward makes them; 0: each by itself",
           NotNegativeRange())
      .Add("sync_batch_norm", &O::sync_batch_norm,
           "Norms (batch_norm) use the statistics of the whole batch, not of the rank's rows")
      .Add("shard_state", &O::shard_state,
           "Each rank keeps a part of the optimizer's state: less memory, and parameters are "
           "gathered")
      .Add("loss_weight", &O::loss_weight,
           "How a rank's loss counts if its ops do not show it: ROWS (by the rank's rows), SUM "
           "(the ranks' values are added) or a variable (by its number of elements, or by its "
           "value if it is a sum over the rows)",
           Number{5}, Example{"loss_weight: \"ROWS\""});
}

Fields<JobConfig> DeployFields() {
  using O = JobConfig;
  const Example all = {"input: \"image\" output: \"prob\""};
  return Fields<O>("")
      .Message("DeployConfig")
      .Add("input", &O::deploy_inputs, "What is fed", all)
      .Add("output", &O::deploy_outputs, "What is fetched", all)
      .Add("stage", &O::deploy_stages, "What the model's rules see, in addition to the phase TEST",
           Number{40}, Example{"input: \"image\" output: \"prob\" stage: \"deploy\""});
}

// --- memory and precision ---

MemberType TypeOfMebibytes() {
  return {AttrType::kLong,
          [](const void* member) -> std::optional<Attribute> {
            return Attribute(static_cast<int64_t>(*static_cast<const uint64_t*>(member) >> 20));
          },
          [](void* member, const Attribute& value) {
            *static_cast<uint64_t*>(member) = static_cast<uint64_t>(AttributeAs<int64_t>(value))
                                              << 20;
          }};
}

Fields<RecomputeOptions> RecomputeFields() {
  using O = RecomputeOptions;
  return Fields<O>("One of the two.")
      .Message("RecomputeConfig")
      .Add("checkpoint", &O::checkpoints, "Variables to keep; what lies between is computed again",
           Example{"checkpoint: [\"conv_1\", \"conv_2\"]"})
      .Add("memory_mb", &O::memory_budget,
           "Chosen such that activations take at most this many MiB for a batch, or as little as "
           "possible",
           TypeOfMebibytes(), ClosedRange(1, 1099511627776), kNoDefault, Example{"memory_mb: 256"})
      .Rule([](O& recompute, const FieldPlaces& given) {
        if (given.Has("memory_mb") != recompute.checkpoints.empty())
          given.FailHere("recompute needs either checkpoint or memory_mb");
      });
}

Fields<MixedPrecisionOptions> PrecisionOptionFields() {
  using O = MixedPrecisionOptions;
  return Fields<O>("")
      .Add("dtype", &O::dtype, "The 16-bit type",
           OneOf{"MixedPrecisionConfig.DType",
                 {{"BFLOAT16", DType::kBFloat16}, {"FLOAT16", DType::kFloat16}}})
      .Add("level", &O::level, "Which ops compute in 16 bits",
           OneOf{"MixedPrecisionConfig.Level",
                 {{"O0", PrecisionLevel::kO0, "all in float32"},
                  {"O1", PrecisionLevel::kO1, "ops of the white list, and the ops that follow"},
                  {"O2", PrecisionLevel::kO2, "all except ops of the black list"},
                  {"O3", PrecisionLevel::kO3, "all, parameters too"}}})
      .Add("custom_white", &O::custom_white, "Op types that compute in 16 bits",
           Example{"custom_white: \"softmax\""})
      .Add("custom_black", &O::custom_black, "Op types that compute in float32",
           Example{"custom_black: \"conv2d\""})
      .Add("black_var", &O::black_vars, "Ops that touch one of these compute in float32",
           Example{"black_var: \"image\""})
      .Add("float32_var", &O::float32_vars, "Variables that stay float32; loss and metrics do",
           Example{"float32_var: \"prob\""})
      .Add("master_weights", &O::master_weights, "For levels O2 and O3: parameters are float32",
           Example{"level: O2 master_weights: true"})
      .Add("float32_norms", &O::float32_norms,
           "For levels O2 and O3: scale, bias and statistics of norms are float32",
           Example{"level: O2 float32_norms: true"});
}

void FinishPrecision(PrecisionConfig& precision, const FieldPlaces& given) {
  const MixedPrecisionOptions& options = precision.options;
  for (const char* field : {"master_weights", "float32_norms"}) {
    if (given.Has(field) && options.level <= PrecisionLevel::kO1)
      given.Fail(field, "applies to the levels O2 and O3; below, parameters are float32");
  }
  const bool small = options.level == PrecisionLevel::kO1 || options.level == PrecisionLevel::kO2;
  if (!given.Has("loss_scaling") && options.dtype == DType::kFloat16 && small)
    precision.scaling = GradScalerOptions();
}

void CheckScaling(const GradScalerOptions& scaling, const FieldPlaces& given) {
  if (!scaling.dynamic) return;
  if (scaling.min_scale > scaling.init_scale)
    given.Fail(given.Has("min_scale") ? "min_scale" : "init_scale",
               fmt::format("min_scale {:g} is above init_scale {:g}", scaling.min_scale,
                           scaling.init_scale));
  if (scaling.max_scale < scaling.init_scale)
    given.Fail("max_scale",
               fmt::format("{:g} is below init_scale {:g}", scaling.max_scale, scaling.init_scale));
}

Fields<PrecisionConfig> PrecisionFields() {
  using O = PrecisionConfig;
  return Fields<O>("")
      .Message("MixedPrecisionConfig")
      .Inline(&O::options, PrecisionOptionFields())
      .Nested("loss_scaling", &O::scaling,
              FieldsOf(GradScalerOptions()).Message("LossScalingConfig").Rule(CheckScaling),
              "default: dynamic scaling with its defaults for FLOAT16 at O1 and O2, else none",
              Number{1009})
      .Rule(FinishPrecision);
}

Fields<QuantizeTrainingOptions> RoundingFields() {
  using O = QuantizeTrainingOptions;
  return Fields<O>("")
      .Add("weights", &O::weight_bits, "Bits of a weight", ClosedRange(2, 8))
      .Add("activations", &O::activation_bits, "Bits of an activation", ClosedRange(2, 8))
      .Add("learned_step", &O::learned_step,
           "Steps of rounding are trained with the parameters (LSQ); needs start_step",
           Example{"learned_step: true start_step: 100"})
      .Add("moving_rate", &O::moving_rate,
           "Weight of the old average of the largest absolute values", LimitedRange(0, 0.999999))
      .Add("exclude", &O::exclude,
           "Products that stay in floating point: a regular expression (RE2) of a part of the name "
           "of their weight or output",
           Example{"exclude: \"logits\""});
}

Fields<QuantizeConfig> QuantizeFields() {
  using O = QuantizeConfig;
  return Fields<O>(
             "Convolutions and matrix products read rounded operands, and the job also saves a "
             "model of integers.")
      .Message("QuantizeConfig")
      .Inline(&O::options, RoundingFields())
      .Add("start_step", &O::start_step,
           "The first steps compute in floating point and observe the ranges", RangeFrom(0),
           Example{"start_step: 500"})
      .Add("freeze_step", &O::freeze_step,
           "After this many steps, ranges and the statistics of batch_norm stay as they are; "
           "default: never",
           RangeFrom(1), kNoDefault, Example{"freeze_step: 2000"})
      .Rule([](O& quantize, const FieldPlaces& given) {
        if (quantize.options.learned_step && quantize.start_step == 0) {
          given.Fail("learned_step", "needs start_step, before which ranges are observed");
        }
        if (quantize.freeze_step > 0 && quantize.freeze_step <= quantize.start_step)
          given.Fail("freeze_step", "must be larger than start_step");
      });
}

// --- the training step ---

template <class Average, class Options>
Fields<Options> AverageFields(const char* message, const char* title) {
  return FieldsOf(Options()).Message(message).Title(title).Rule(
      [](Options& options, const FieldPlaces& given) {
        try {
          Average{options};  // checks numbers that belong together
        } catch (const Error& error) {
          throw error.WithPrefix(given.Place(""));
        }
      });
}

Fields<TrainingConfig> AveragesFields() {
  using O = TrainingConfig;
  return Fields<O>("Averages of the parameters, evaluated and deployed in their place.")
      .Message("AverageConfig")
      .Choice("ema", &O::average,
              AverageFields<ExponentialMovingAverage, ExponentialMovingAverageOptions>(
                  "ema_average", "exponential moving average"))
      .Choice("model_average", &O::average,
              AverageFields<ModelAverage, ModelAverageOptions>("model_average_average",
                                                               "model average"));
}

Fields<TrainingConfig> TrainingFields() {
  using O = TrainingConfig;
  return Fields<O>("")
      .Add("non_finite_loss", &O::non_finite_loss, "At a step whose loss is a nan or infinite",
           Number{54},
           OneOf{
               "JobConfig.NonFiniteLoss",
               {{"STOP", NonFiniteLoss::kStop, "the run ends with an error"},
                {"WARN", NonFiniteLoss::kWarn, "the run continues with a warning"},
                {"SKIP", NonFiniteLoss::kSkip, "the update is left out; 20 in a row end the run"}}})
      .Add("clip_statistics", &O::clip_statistics,
           "Counts how often clips act and by how much, for each display; always for clips by norm")
      .Add("iter_size", &O::iter_size,
           "Batches whose gradients make one update. A step is an update",
           LimitedRange(1, kMostSteps), Number{70})
      .Add("sum_gradients", &O::sum_gradients, "Their sum instead of their mean",
           Example{"iter_size: 4 sum_gradients: true"})
      .Add("clip_before_average", &O::clip_before_average,
           "The clip sees the sum, which is divided afterwards (Caffe's order)",
           Example{"iter_size: 4 clip_before_average: true"})
      .Declare("optimizer", "OptimizerConfig", true, "default: sgd with its defaults", Number{1049})
      .Group("average", AveragesFields(), "")
      .Nested("lookahead", &O::lookahead,
              FieldsOf(LookaheadOptions()).Message("LookaheadConfig").Title("lookahead"), "")
      .Rule([](O& training, const FieldPlaces& given) {
        if (training.clip_before_average && training.sum_gradients)
          given.Fail("clip_before_average",
                     "does not apply to sum_gradients, which has no average");
      });
}

void FinishJob(JobConfig& job, const FieldPlaces& given) {
  if (given.Has("model") && given.Has("model_text"))
    given.Fail("model_text", "and model cannot both be given");
  if (job.deploy_inputs.empty() != job.deploy_outputs.empty())
    given.Fail("deploy", "needs both input and output");
  if (!job.carry.empty() && !given.Has("shuffle")) job.shuffle = false;
  if (!job.carry.empty() && job.shuffle)
    given.Fail("shuffle", "must be false where states are carried: rows follow one another");
  if (given.Has("test_iter") && !given.Has("test"))
    given.Fail("test_iter", "is of test, which is not given");
  FinishWatches(job, given);
}

void AddNetworkAndData(Fields<JobConfig>& job) {
  using O = JobConfig;
  job.Add("name", &O::name,
          "Names the job in messages and its default output directory, output/NAME; must not lead "
          "out of output. Default: the file's name",
          kNoDefault, Example{"name: \"lenet\""})
      .Add("model", &O::model, "The network: a file of model text, relative to the job's directory",
           Example{"model: \"lenet.pbtxt\""})
      .Add("model_text", &O::model_text,
           "The network itself, in quotes (also triple ones); in place of `model`",
           Example{"model_text: \"data { name: 'x' shape: [-1, 4] } ...\""})
      .Nested("train", &O::train, DataFields(), "What the steps see")
      .Nested("test", &O::test, DataFields(), "What evaluations see")
      .Nested(
          "bind", &O::bind, BindFields(),
          "Which column of the data feeds which variable; without an entry, the one of the same "
          "name")
      .Nested("carry", &O::carry, CarryFields(),
              "States that each batch hands to the next: truncated backpropagation through time",
              Number{26}, Example{"carry { from: \"last_h\" to: \"init_h\" }"})
      .Add("data_dir", &O::data_dir,
           "Where relative names of data files begin (relative to the job's directory, which is "
           "the default). The flag --data_dir overrides it",
           Number{7}, Example{"data_dir: \"../data\""})
      .Add("loss", &O::loss, "The variable to minimise: one number, the mean over the batch")
      .Add("loss_name", &O::loss_name, "As printed: \"nats\"", Number{27},
           Example{"loss_name: \"nats\""})
      .Nested("metric", &O::metrics, MetricFields(),
              "Variables that hold one number, a mean over the batch, shown with the loss",
              Number{9});
}

void AddSteps(Fields<JobConfig>& job) {
  using O = JobConfig;
  constexpr double kMostRows = std::numeric_limits<int32_t>::max();
  job.Add("batch_size", &O::batch_size, "Rows of one batch", LimitedRange(1, kMostRows), Number{11})
      .Add("test_batch_size", &O::test_batch_size, "Of evaluations; default: batch_size",
           LimitedRange(1, kMostRows), kNoDefault)
      .Add("max_iter", &O::max_iter,
           "The job ends after this many steps, or after `epochs` if those come first",
           RangeFrom(1), kNoDefault, Example{"max_iter: 2000"})
      .Add("epochs", &O::epochs,
           "The job ends after this many passes over the data, or after `max_iter` if that comes "
           "first",
           RangeFrom(1), kNoDefault, Example{"epochs: 10"})
      .Add("test_interval", &O::test_interval, "Steps between evaluations; 0: after each epoch",
           RangeFrom(0), kNoDefault, Example{"test_interval: 500"})
      .Add("display", &O::display, "Steps between lines of progress", RangeFrom(1));
}

void AddOutputs(Fields<JobConfig>& job) {
  using O = JobConfig;
  job.Add("snapshot_interval", &O::snapshot_interval,
          "Steps between snapshots. 0: one at the end of the job, or where it was stopped",
          RangeFrom(0), kNoDefault, Example{"snapshot_interval: 1000"})
      .Add("snapshot_dir", &O::snapshot_dir, "Default: OUTPUT_DIR/snapshots",
           Example{"snapshot_dir: \"snapshots\""})
      .Add("keep_snapshots", &O::keep_snapshots, "Older ones are removed; 0 keeps all",
           RangeFrom(0))
      .Add("output_dir", &O::output_dir, "Default: output/NAME, below the working directory",
           Example{"output_dir: \"output/lenet\""})
      .Add("random_seed", &O::random_seed, "Of initial values, dropout, order of rows")
      .Add("shuffle", &O::shuffle,
           "Rows come in another order each epoch; default where states are carried: false")
      .Add("drop_last", &O::drop_last, "Leave out an epoch's last, smaller batch")
      .Add("prefetch", &O::prefetch, "Read the next batch while one is trained on")
      .Group("deploy", DeployFields(),
             "Inputs and outputs of the trained model, saved as OUTPUT_DIR/model.pdmodel",
             Example{"deploy { input: \"image\" output: \"prob\" }"})
      .Nested("recompute", &O::recompute, RecomputeFields(),
              "Activations that backward computes again instead of keeping them: less memory, more "
              "time",
              Number{28}, Example{"recompute { memory_mb: 256 }"})
      .Nested("distribute", &O::distribute, DistributeFields(),
              "How several ranks (--ranks, mpirun, srun) divide the work",
              Example{"distribute { shard_state: true }"});
}

void AddRun(Fields<JobConfig>& job) {
  using O = JobConfig;
  job.Nested("test_set", &O::test_sets, TestSetFields(),
             "In addition to `test`, whose name is \"test\"", Number{40})
      .Add("stage", &O::stages,
           "What the model's include_if and exclude_if see in training, in addition to the phase "
           "TRAIN",
           Example{"stage: \"pretrain\""})
      .Add("test_iter", &O::test_iterations, "Batches of `test` in an evaluation; default: all",
           RangeFrom(1), kNoDefault, Example{"test_iter: 10"})
      .Add("initial_test", &O::initial_test, "An evaluation before the first step")
      .Add("average_loss", &O::average_loss,
           "The shown loss is the mean over the rows of this many steps; default: of the steps "
           "since it was last shown",
           LimitedRange(1, kMostSteps), kNoDefault, Example{"average_loss: 100"})
      .Nested("best", &O::best, BestFields(), "Which evaluation is the best")
      .Nested("early_stop", &O::early_stop, EarlyStopFields(), "When to end before max_iter")
      .Nested("signal", &O::signals, SignalFields(), "What Ctrl-C and other signals do")
      .Add("max_seconds", &O::max_seconds,
           "The run saves and stops after this many seconds; --resume continues it",
           PositiveRange(), kNoDefault, Example{"max_seconds: 3600"})
      .Nested("weights", &O::weights, WeightsFields(),
              "Values to begin with, by name, one file after the other. A resumed run has its own")
      .Add("freeze", &O::freeze,
           "Parameters that stay as they are: regular expressions (RE2) of whole names",
           Example{"freeze: \"conv_[12].*\""})
      .Add("debug_info", &O::debug_info,
           "Reports the mean absolute value of every activation, gradient and parameter at each "
           "display")
      .Nested("log", &O::log, LogFields(), "Files that record the run")
      .Add("snapshot_after_train", &O::snapshot_after_train, "One at the end, too")
      .Nested("mixed_precision", &O::mixed_precision, PrecisionFields(),
              "16-bit floats in the heavy ops, see docs/mixed_precision.md", Number{60})
      .Nested("quantize", &O::quantize, QuantizeFields(),
              "Training for inference in integers, see docs/quantization.md",
              Example{"quantize { start_step: 500 }"});
}

Fields<JobConfig> MakeJobFields() {
  Fields<JobConfig> job(
      "A training job: the network, its data, how it is trained and what is saved.");
  job.Message("JobConfig");
  AddNetworkAndData(job);
  AddSteps(job);
  AddOutputs(job);
  AddRun(job);
  return job.Inline(&JobConfig::training, TrainingFields()).Rule(FinishJob);
}

}  // namespace

bool internal::ComparesScores(MetricKind kind) {
  return kind == MetricKind::kAccuracy || kind == MetricKind::kAuc || HasAverage(kind) ||
         kind == MetricKind::kConfusion;
}

bool internal::ComparesNumbers(MetricKind kind) {
  return kind == MetricKind::kR2 || kind == MetricKind::kMae || kind == MetricKind::kRmse;
}

const Fields<JobConfig>& internal::JobFields() {
  static const Fields<JobConfig> table = MakeJobFields();
  return table;
}

WatchGoal GoalOf(const JobConfig& config, const WatchConfig& watch) {
  if (watch.goal != WatchGoal::kAuto) return watch.goal;
  const std::string name = watch.metric.substr(watch.metric.find('/') + 1);
  bool rises = name == "accuracy" || name == "acc" || name == "auc";
  for (const MetricConfig& metric : config.metrics)
    rises |= metric.name == name && (ComparesScores(metric.kind) || metric.kind == MetricKind::kR2);
  return rises ? WatchGoal::kMaximize : WatchGoal::kMinimize;
}

}  // namespace coracle
