#include <coracle/framework/base/file.h>
#include <coracle/framework/base/parallel.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/program_io.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/printer.h>
#include <coracle/framework/op/default_attr.h>
#include <coracle/layers/model_text.h>
#include <coracle/train/carry.h>
#include <coracle/train/snapshot.h>
#include <coracle/train/trainer.h>
#include <coracle/train/vocabulary.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>

namespace coracle {
namespace {

namespace fs = std::filesystem;

Model LoadModel(const JobConfig& config, const OpRegistry& ops) {
  if (config.model.empty())
    return ParseModelText(config.model_text, config.source, config.directory, ops);
  fs::path path(config.model);
  if (!path.is_absolute() && config.model != "-") path = fs::path(config.directory) / path;
  const std::string file = path.lexically_normal().string();
  if (config.model != "-" && !FileExists(file)) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: model: there is no file {}", config.source, Quote(file, 300)));
  }
  return ReadModelText(file, ops);
}

// A metric holds one number; what the program leaves open is seen when it runs.
void RequireNumber(const JobConfig& config, const std::string& metric, const VarDesc& var) {
  if (!var.shape().IsKnown() ? var.shape().rank() == 1 : var.shape().numel() == 1) return;
  ThrowInvalid(fmt::format("{}: metric {} must hold one number, a mean over the batch; it is {}",
                           config.source, Quote(metric), var.meta().ToString()));
}

// Sums of loss and metrics, weighted by rows.
class Window {
 public:
  explicit Window(size_t count) : sums_(count), means_(count - 1) {}
  void Add(double loss, const std::vector<double>& metrics, int64_t rows) {
    sums_[0] += loss * static_cast<double>(rows);
    for (size_t i = 0; i < metrics.size(); ++i)
      sums_[i + 1] += metrics[i] * static_cast<double>(rows);
    rows_ += rows;
  }
  void Clear() {
    std::fill(sums_.begin(), sums_.end(), 0.0);
    rows_ = 0;
  }
  double MeanLoss() const { return sums_[0] / static_cast<double>(std::max<int64_t>(rows_, 1)); }
  const std::vector<double>& MeanMetrics() {
    for (size_t i = 0; i < means_.size(); ++i)
      means_[i] = sums_[i + 1] / static_cast<double>(std::max<int64_t>(rows_, 1));
    return means_;
  }
  void Save(Snapshot* s) const {
    s->sums = sums_;
    s->sum_rows = rows_;
  }
  void Load(const Snapshot& s) {
    sums_ = s.sums;
    rows_ = s.sum_rows;
  }

 private:
  std::vector<double> sums_, means_;
  int64_t rows_ = 0;
};

class Job {
 public:
  Job(const JobConfig& config, const TrainOptions& options, const TrainCallbacks& callbacks)
      : config_(config),
        options_(options),
        callbacks_(callbacks),
        ops_(options.ops ? *options.ops : DefaultOps()),
        window_(config.metrics.size() + 1),
        metrics_(config.metrics.size()) {}

  TrainResult Run() {
    CheckJob(config_);
    MakeOutputDirectories();
    OpenData();
    BuildPrograms();
    Compile();
    Start();
    WritePrograms();
    Loop();
    Finish();
    return std::move(result_);
  }

 private:
  // Before anything is computed: hours of training should not end in a name that cannot be written.
  void MakeOutputDirectories() {
    for (const std::string& directory : {config_.output_dir, config_.SnapshotDirectory()}) {
      if (directory.empty()) continue;
      MakeDirectories(directory);
      if (::access(directory.c_str(), W_OK | X_OK) == 0) continue;
      throw Error(ErrorCode::kIo,
                  fmt::format("{}: cannot write into the directory {}: {}", config_.source,
                              Quote(directory, 300), std::strerror(errno)));
    }
  }

  void OpenData() {
    train_data_ = OpenTrainData(config_);
    test_data_ = OpenTestData(config_);
    reader_.emplace(train_data_, BatchOptions{.batch_size = config_.batch_size,
                                              .shuffle = config_.shuffle,
                                              .drop_last = config_.drop_last,
                                              .seed = config_.random_seed,
                                              .prefetch = config_.prefetch});
    plan_.job = config_.name;
    plan_.data = train_data_->Describe();
    plan_.steps_per_epoch = reader_->batches_per_epoch();
    constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
    int64_t by_epochs = kEndless;
    if (config_.epochs > 0 && config_.epochs < kEndless / plan_.steps_per_epoch)
      by_epochs = config_.epochs * plan_.steps_per_epoch;
    plan_.total_steps = std::min(config_.max_iter > 0 ? config_.max_iter : kEndless, by_epochs);
    plan_.loss_name = config_.loss_name;
    for (const MetricConfig& metric : config_.metrics) plan_.metric_names.push_back(metric.name);
    CheckStreams(*train_data_, config_.batch_size);
    if (test_data_) CheckStreams(*test_data_, TestBatchSize());
  }

  int64_t TestBatchSize() const {
    return config_.test_batch_size ? config_.test_batch_size : config_.batch_size;
  }

  void CheckStreams(const DataSource& data, int64_t batch_size) const {
    if (config_.carry.empty() || data.streams() == batch_size) return;
    ThrowInvalid(fmt::format(
        "{}: states can only be carried through a text: the batches of {} do not continue each "
        "other",
        config_.source, data.Describe()));
  }

  void RequireVar(const std::string& what, const std::string& name) {
    const BlockDesc& root = result_.main.Root();
    if (root.FindVar(name) != nullptr) return;
    std::vector<std::string> names;
    for (size_t i = 0; i < root.NumVars(); ++i) names.push_back(root.var(i).name());
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: {} {}: the model has no such variable{}", config_.source, what,
                            Quote(name), DidYouMean(name, names)));
  }

  void BuildPrograms() {
    Model model = LoadModel(config_, ops_);
    result_.main = std::move(model.main);
    result_.startup = std::move(model.startup);
    inputs_ = model.inputs.empty() ? FindInputs(result_.main) : model.inputs;
    if (result_.startup.Root().NumOps() == 0 && !result_.main.Parameters().empty() &&
        !options_.resume) {
      ThrowInvalid(
          fmt::format("{}: nothing initialises {}: the model is a program without its "
                      "startup program; give a model text",
                      config_.source, Quote(result_.main.Parameters().front())));
    }
    carry_.emplace(result_.main, config_.carry, config_.batch_size, config_.source);
    columns_ = inputs_;
    for (const std::string& to : carry_->to()) {
      if (std::erase(columns_, to) > 0) continue;
      ThrowInvalid(fmt::format("{}: carry to {}: it is no input of the model, or is given twice",
                               config_.source, Quote(to)));
    }
    RequireVar("loss", config_.loss);
    for (const MetricConfig& metric : config_.metrics) {
      RequireVar("metric", metric.var);
      RequireNumber(config_, metric.var, *result_.main.Root().FindVar(metric.var));
    }
    for (const std::string& name : config_.deploy_inputs) RequireVar("deploy input", name);
    for (const std::string& name : config_.deploy_outputs) RequireVar("deploy output", name);
    for (const BindConfig& bind : config_.bind) RequireVar("bind", bind.var);
    for (const std::string& name : config_.recompute.checkpoints)
      RequireVar("recompute checkpoint", name);
    result_.main.random_seed = result_.startup.random_seed = config_.random_seed;
    result_.test = result_.main.CloneForTest();
    MinimizeOptions minimize;
    minimize.ops = options_.ops;
    minimize.recompute = config_.recompute;
    minimize.recompute.batch_size = config_.batch_size;
    const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(config_.optimizer);
    optimizer->SetGradientClip(config_.gradient_clip);
    optimizer->Minimize(Variable::Of(result_.main.Root(), config_.loss), result_.startup, minimize);
    for (const std::string& name : result_.main.Parameters())
      plan_.parameters += result_.main.Root().FindVar(name)->shape().numel();
  }

  // Loss and metrics, and the states to carry.
  std::vector<std::string> Fetches() const {
    std::vector<std::string> fetches{config_.loss};
    for (const MetricConfig& metric : config_.metrics) fetches.push_back(metric.var);
    fetches.insert(fetches.end(), carry_->from().begin(), carry_->from().end());
    return fetches;
  }
  // The data's columns, and the states.
  std::vector<std::string> Feeds() const {
    std::vector<std::string> feeds = columns_;
    feeds.insert(feeds.end(), carry_->to().begin(), carry_->to().end());
    return feeds;
  }

  void Compile() {
    CompileOptions compile = options_.compile;
    compile.seed = config_.random_seed;
    Executor executor(compile, ops_);
    feeder_.emplace(result_.main, columns_, *train_data_, config_.bind, config_.source);
    step_.emplace(executor.Prepare(result_.main, Feeds(), Fetches()));
    if (!test_data_) return;
    compile.profile = false;
    int64_t batch = TestBatchSize();
    evaluator_.emplace(Executor(compile, ops_).Prepare(result_.test, Feeds(), Fetches()),
                       Feeder(result_.test, columns_, *test_data_, config_.bind, config_.source),
                       Carry(result_.test, config_.carry, batch, config_.source), test_data_,
                       BatchOptions{.batch_size = batch, .prefetch = config_.prefetch});
  }

  Snapshot Now() const {
    Snapshot s;
    s.job = config_.name;
    s.step = steps_;
    s.epoch = reader_->position() / plan_.steps_per_epoch;
    s.position = reader_->position();
    s.random_step = step_->step();
    s.seed = config_.random_seed;
    s.data = plan_.data;
    s.rows = train_data_->size();
    s.batch_size = config_.batch_size;
    s.shuffle = config_.shuffle;
    s.drop_last = config_.drop_last;
    s.threads = NumThreads();
    s.instructions = InstructionSet();
    s.carried = carry_->Save();
    window_.Save(&s);
    return s;
  }

  void Start() {
    std::string directory =
        options_.resume_from.empty() ? config_.SnapshotDirectory() : options_.resume_from;
    std::string found = options_.resume ? FindSnapshot(directory) : "";
    if (!found.empty()) {
      Resume(found);
    } else if (options_.resume && !options_.resume_from.empty()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("no snapshot in {}: nothing to resume", Quote(directory, 300)));
    } else {
      if (options_.resume)
        plan_.note = fmt::format("no snapshot in {}: starting afresh", Quote(directory, 300));
      CompileOptions compile = options_.compile;
      compile.seed = config_.random_seed;
      compile.profile = false;
      Executor(compile, ops_).Run(result_.startup, result_.scope);
    }
    if (callbacks_.on_start) callbacks_.on_start(plan_);
  }

  void Resume(const std::string& path) {
    Snapshot snapshot = ReadSnapshot(path, result_.main, result_.startup, result_.scope);
    CheckContinues(path, snapshot, Now());
    steps_ = snapshot.step;
    reader_->Seek(snapshot.position);
    step_->SetStep(snapshot.random_step);
    window_.Load(snapshot);
    carry_->Load(snapshot.carried);
    plan_.first_step = steps_;
    plan_.resumed_from = result_.snapshot_path = path;
    if (steps_ >= plan_.total_steps)
      plan_.note = fmt::format(
          "the snapshot is of step {} and the job ends at {}: it is only "
          "evaluated and saved",
          steps_, plan_.total_steps);
  }

  void Loop() {
    while (steps_ < plan_.total_steps && !result_.stopped) {
      Step();
      bool last = steps_ == plan_.total_steps;
      if (callbacks_.stop && callbacks_.stop()) result_.stopped = !last;
      bool epoch_end = reader_->position() % plan_.steps_per_epoch == 0;
      bool due = config_.test_interval > 0 ? steps_ % config_.test_interval == 0 : epoch_end;
      if (evaluator_ && !result_.stopped && (due || last)) Evaluate();
      bool save = config_.snapshot_interval > 0 && steps_ % config_.snapshot_interval == 0;
      if (save || last || result_.stopped) Save();
    }
    if (evaluator_ && !result_.stopped && evaluated_ != steps_) Evaluate();
  }

  void Step() {
    int64_t epoch = reader_->position() / plan_.steps_per_epoch;
    if (reader_->position() % plan_.steps_per_epoch == 0) carry_->Reset();
    const std::vector<Tensor>& batch = reader_->Next();
    const std::vector<Tensor>& feeds = carry_->Append(feeder_->Bind(batch));
    const std::vector<Tensor>& out = step_->Run(result_.scope, feeds);
    carry_->Take(std::span(out).subspan(1 + metrics_.size()));
    ++steps_;
    int64_t rows = batch[0].shape()[0];
    double loss = ScalarOf(out[0], config_.loss);
    for (size_t i = 0; i < metrics_.size(); ++i)
      metrics_[i] = ScalarOf(out[i + 1], config_.metrics[i].var);
    if (!std::isfinite(loss)) {
      ThrowInvalid(
          fmt::format("{}: the loss is {} at step {}; lower the learning rate, or look "
                      "for the first bad op with --check_nan_inf",
                      config_.source, loss, steps_));
    }
    window_.Add(loss, metrics_, rows);
    bool due = steps_ % config_.display == 0;
    bool show = due || steps_ == plan_.total_steps;
    if (show || callbacks_.on_step) result_.loss = window_.MeanLoss();
    if (callbacks_.on_step)
      callbacks_.on_step({plan_, steps_, epoch, rows, loss, metrics_, window_.MeanLoss(),
                          window_.MeanMetrics(), show});
    if (show) SetMetrics(window_.MeanMetrics());
    if (due) window_.Clear();
    // The table is of the plan run last: take it before a smaller batch brings another plan.
    bool epoch_ends = reader_->position() % plan_.steps_per_epoch >= plan_.steps_per_epoch - 1;
    if (options_.compile.profile && rows == config_.batch_size && epoch_ends)
      result_.profile = step_->ProfileTable();
  }

  void SetMetrics(const std::vector<double>& values) {
    result_.metrics.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      result_.metrics[i] = {plan_.metric_names[i], values[i]};
  }

  void Evaluate() {
    const std::vector<double>& means = evaluator_->Run(result_.scope);
    evaluated_ = steps_;
    eval_loss_ = means[0];
    eval_metrics_.assign(means.begin() + 1, means.end());
    int64_t epoch = std::max<int64_t>(reader_->position() - 1, 0) / plan_.steps_per_epoch;
    if (callbacks_.on_eval)
      callbacks_.on_eval({plan_, steps_, epoch, evaluator_->rows(), eval_loss_, eval_metrics_});
  }

  void Save() {
    std::string directory = config_.SnapshotDirectory();
    if (directory.empty()) return;
    result_.snapshot_path = WriteSnapshot(directory, Now(), result_.main, result_.startup,
                                          result_.scope, config_.text, config_.keep_snapshots);
    if (callbacks_.on_snapshot) callbacks_.on_snapshot(result_.snapshot_path);
  }

  void Finish() {
    result_.steps = steps_;
    if (options_.compile.profile && result_.profile.empty() && steps_ > plan_.first_step)
      result_.profile = step_->ProfileTable();
    if (evaluated_ >= 0) {
      result_.loss = eval_loss_;
      SetMetrics(eval_metrics_);
    }
    if (!config_.output_dir.empty() && !result_.stopped) SaveModels();
  }

  std::string Output(const char* file) const {
    return (fs::path(config_.output_dir) / file).string();
  }

  // Before the first step, for whoever looks on.
  void WritePrograms() {
    if (config_.output_dir.empty()) return;
    result_.main_path = Output("main.pb");
    result_.startup_path = Output("startup.pb");
    result_.dump_path = Output("main.txt");
    WriteProgram(result_.main, result_.main_path);
    WriteProgram(result_.startup, result_.startup_path);
    PrintOptions print;
    print.hide_attr = [this](const OpDesc& op, const NamedAttr& attr) {
      return IsDefaultAttr(ops_, op, attr);
    };
    WriteFileAtomic(result_.dump_path, PrintProgram(result_.main, print));
    WriteVocabulary();
  }

  void SaveModels() {
    SaveInferenceModel(Output("eval"), Feeds(), Fetches(), result_.test, result_.scope);
    result_.eval_path = Output("eval.pdmodel");
    if (config_.deploy_outputs.empty()) return;
    std::vector<std::string> inputs = config_.deploy_inputs, outputs = config_.deploy_outputs;
    for (const CarryConfig& carry : config_.carry) {
      std::erase(inputs, carry.to);
      std::erase(outputs, carry.from);
    }
    inputs.insert(inputs.end(), carry_->to().begin(), carry_->to().end());
    outputs.insert(outputs.end(), carry_->from().begin(), carry_->from().end());
    SaveInferenceModel(Output("model"), inputs, outputs, result_.test, result_.scope);
    result_.model_path = Output("model.pdmodel");
  }

  void WriteVocabulary() {
    const Vocabulary* vocabulary = train_data_->vocabulary();
    if (!vocabulary) return;
    result_.vocabulary_path = Output("vocabulary.json");
    WriteFileAtomic(result_.vocabulary_path, vocabulary->ToJson());
  }

  const JobConfig& config_;
  const TrainOptions& options_;
  const TrainCallbacks& callbacks_;
  const OpRegistry& ops_;
  TrainPlan plan_;
  TrainResult result_;
  std::vector<std::string> inputs_, columns_;  // all, and those that the data feeds
  std::optional<Carry> carry_;
  DataSourcePtr train_data_, test_data_;
  std::optional<BatchReader> reader_;
  std::optional<Feeder> feeder_;
  std::optional<PreparedProgram> step_;
  std::optional<Evaluator> evaluator_;
  int64_t steps_ = 0;
  Window window_;
  std::vector<double> metrics_;
  int64_t evaluated_ = -1;  // step of the last evaluation
  double eval_loss_ = 0;
  std::vector<double> eval_metrics_;
};

}  // namespace

TrainResult RunJob(const JobConfig& config, const TrainOptions& options,
                   const TrainCallbacks& callbacks) {
  return Job(config, options, callbacks).Run();
}

}  // namespace coracle
