#include <coracle/framework/base/file.h>
#include <coracle/framework/base/logging.h>
#include <coracle/framework/base/parallel.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/carry.h>
#include <coracle/train/internal/outputs.h>
#include <coracle/train/internal/probe.h>
#include <coracle/train/internal/programs.h>
#include <coracle/train/internal/watch.h>
#include <coracle/train/run_log.h>
#include <coracle/train/trainer.h>
#include <coracle/train/weights.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>

namespace coracle {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> NamesOf(const std::vector<MetricConfig>& metrics) {
  std::vector<std::string> names;
  names.reserve(metrics.size());
  for (const MetricConfig& metric : metrics) names.push_back(metric.name);
  return names;
}

// A set of test data with the program that is evaluated on it.
struct TestSet {
  std::string name;
  std::vector<std::string> value_names;  // as printed: the loss, then the metrics
  std::unique_ptr<Evaluator> evaluator;
};

class Job {
 public:
  Job(const JobConfig& config, const TrainOptions& options, const TrainCallbacks& callbacks)
      : config_(config),
        options_(options),
        callbacks_(callbacks),
        ops_(options.ops ? *options.ops : DefaultOps()),
        began_(Clock::now()),
        log_(config) {}

  TrainResult Run() {
    CheckJob(config_);
    locks_ = OpenOutputDirectories(config_);
    OpenData();
    programs_ = BuildPrograms(config_, options_);
    Compile();
    MakePlan();
    Start();
    WritePrograms(config_, programs_, *train_data_, ops_, &result_);
    Loop();
    Finish();
    return std::move(result_);
  }

 private:
  // --- before the first step ---

  void OpenData() {
    train_data_ = OpenTrainData(config_);
    CheckStreams(*train_data_, config_.batch_size);
    const BatchOptions batch{.batch_size = config_.batch_size,
                             .shuffle = config_.shuffle,
                             .drop_last = config_.drop_last,
                             .seed = config_.random_seed,
                             .prefetch = config_.prefetch};
    try {
      reader_.emplace(train_data_, batch);
    } catch (const Error& e) {
      throw e.WithPrefix(config_.Place("batch_size"));
    }
    batches_per_epoch_ = reader_->batches_per_epoch();
  }

  void CheckStreams(const DataSource& data, int64_t batch_size) const {
    if (config_.carry.empty() || data.streams() == batch_size) return;
    ThrowInvalid(fmt::format(
        "{}: states can only be carried through a text: the batches of {} do not continue each "
        "other",
        config_.Place("carry[0]"), data.Describe()));
  }

  void Compile() {
    const Net& net = programs_.train;
    CompileOptions compile = options_.compile;
    compile.seed = config_.random_seed;
    const Executor executor(compile, ops_);
    carry_.emplace(net.program, config_.carry, config_.batch_size, config_.source);
    feeder_.emplace(net.program, net.columns, *train_data_, config_.bind, config_.Place("train"));
    window_.emplace(config_.loss, net.metrics, config_.average_loss * IterSize());
    probe_.emplace(net.program, config_.debug_info, config_.log.histogram_interval > 0);
    std::vector<std::string> fetches = window_->fetches();
    fetches.insert(fetches.end(), carry_->from().begin(), carry_->from().end());
    fetches.insert(fetches.end(), probe_->fetches().begin(), probe_->fetches().end());
    step_.emplace(executor.Prepare(net.program, net.Feeds(config_), fetches));

    compile.profile = false;
    compile.stop = callbacks_.stop;
    const std::vector<TestSetConfig> sets = config_.TestSets();
    for (size_t i = 0; i < sets.size(); ++i) AddTestSet(sets[i], programs_.tests[i], compile);
  }

  void AddTestSet(const TestSetConfig& set, const Net& net, const CompileOptions& compile) {
    const std::string place = config_.Place(set.where);
    DataSourcePtr data = OpenTestData(config_, set);
    CheckStreams(*data, set.batch_size);
    MetricSums sums(net.has_loss ? config_.loss : "", net.metrics);
    if (sums.size() == 0) {
      ThrowInvalid(fmt::format("{}: there is neither loss nor metric to evaluate on {}", place,
                               Quote(set.name)));
    }
    Carry carry(net.program, config_.carry, set.batch_size, config_.source);
    std::vector<std::string> fetches = sums.fetches(), names = NamesOf(net.metrics);
    fetches.insert(fetches.end(), carry.from().begin(), carry.from().end());
    if (net.has_loss) names.insert(names.begin(), config_.loss_name);
    Feeder feeder(net.program, net.columns, *data, config_.bind, place);
    tests_.push_back({set.name, names,
                      std::make_unique<Evaluator>(
                          Executor(compile, ops_).Prepare(net.program, net.Feeds(config_), fetches),
                          std::move(feeder), std::move(carry), std::move(sums), data,
                          BatchOptions{.batch_size = set.batch_size, .prefetch = config_.prefetch},
                          set.iterations)});
  }

  void MakePlan() {
    plan_.job = config_.name;
    plan_.data = train_data_->Describe();
    plan_.steps_per_epoch = UpdatesOf(batches_per_epoch_);
    constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
    int64_t by_epochs = kEndless;
    if (config_.epochs > 0 && config_.epochs < kEndless / batches_per_epoch_)
      by_epochs = UpdatesOf(config_.epochs * batches_per_epoch_);
    plan_.total_steps = std::min(config_.max_iter > 0 ? config_.max_iter : kEndless, by_epochs);
    plan_.loss_name = config_.loss_name;
    plan_.metric_names = NamesOf(programs_.train.metrics);
    const ProgramDesc& main = programs_.train.program;
    for (const std::string& name : main.Parameters())
      plan_.parameters += main.Root().FindVar(name)->shape().numel();
    std::vector<std::string> names;
    std::vector<std::vector<std::string>> values;
    for (const TestSet& test : tests_) {
      names.push_back(test.name);
      values.push_back(test.value_names);
    }
    watch_.emplace(config_, names, values);
    for (const auto& [metric, place] : programs_.training.Watched()) CheckWatched(metric, place);
  }

  int64_t IterSize() const { return config_.training.iter_size; }
  int64_t UpdatesOf(int64_t batches) const {
    return batches / IterSize() + (batches % IterSize() != 0 ? 1 : 0);
  }

  // Of a plateau.
  void CheckWatched(const std::string& metric, const std::string& place) const {
    if (tests_.empty()) {
      ThrowInvalid(fmt::format("{}: plateau needs test data, whose evaluations it watches", place));
    }
    const std::vector<std::string>& names = tests_[0].value_names;
    if (metric.empty() || std::find(names.begin(), names.end(), metric) != names.end()) return;
    ThrowInvalid(fmt::format("{}: plateau: evaluations have no {}; they have {}{}", place,
                             Quote(metric), Join(names, ", "), DidYouMean(metric, names)));
  }

  // A snapshot of this moment.
  Snapshot Now() const {
    Snapshot s;
    s.job = config_.name;
    s.step = steps_;
    s.epoch = reader_->position() / batches_per_epoch_;
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
    s.progress = window_->Save();
    s.evaluations = result_.evaluations;
    s.best = watch_->best();
    s.carried = carry_->Save();
    return s;
  }

  void Start() {
    const std::string directory = config_.SnapshotDirectory();
    if (!directory.empty()) RemoveStaleTemporaries(directory);
    const std::string from = options_.resume_from.empty() ? directory : options_.resume_from;
    const std::string found = options_.resume ? FindSnapshot(from) : "";
    if (!found.empty()) {
      Resume(found);
    } else if (options_.resume && !options_.resume_from.empty()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("no snapshot in {}: nothing to resume", Quote(from, 300)));
    } else {
      if (options_.resume)
        plan_.note = fmt::format("no snapshot in {}: starting afresh", Quote(from, 300));
      RunStartup();
    }
    probe_->Begin(result_.scope);
    if (callbacks_.on_start) callbacks_.on_start(plan_);
    log_.Start(plan_, programs_.train.program);
    for (const std::string& line : messages_) Tell(line);
    messages_.clear();
  }

  void RunStartup() {
    CompileOptions compile = options_.compile;
    compile.seed = config_.random_seed;
    compile.profile = false;
    Executor(compile, ops_).Run(programs_.startup, result_.scope);
    const std::vector<std::string> names = PersistableNames(programs_.deploy.program);
    for (size_t i = 0; i < config_.weights.size(); ++i) {
      const WeightsConfig& weights = config_.weights[i];
      try {
        const WeightsReport report =
            LoadWeights(config_.FilePath(weights.file), programs_.deploy.program, names,
                        weights.skip_mismatched, result_.scope);
        messages_.push_back(report.ToString());
      } catch (const Error& e) {
        throw e.WithPrefix(config_.Place(fmt::format("weights[{}]", i)));
      }
    }
  }

  // Names another one when this one is damaged.
  static SavedSnapshot ReadWhole(const std::string& path) {
    try {
      return ReadSnapshot(path);
    } catch (const Error& e) {
      const std::string directory = std::filesystem::path(path).parent_path().string();
      std::vector<std::string> others = ListSnapshots(directory.empty() ? "." : directory);
      std::erase_if(others, [&path](const std::string& other) { return other >= path; });
      if (e.code() != ErrorCode::kDataLoss || others.empty()) throw;
      throw e.WithDetail("an older one: --resume=" + others.back());
    }
  }

  void Resume(const std::string& path) {
    SavedSnapshot saved = ReadWhole(path);
    const ProgramDesc& main = programs_.train.program;
    const std::vector<std::string> mismatches = Mismatches(saved, Now(), main, programs_.startup);
    if (!mismatches.empty() && !options_.override_mismatch) {
      std::string details;
      for (size_t i = 1; i < mismatches.size(); ++i) details += mismatches[i] + "\n";
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} cannot be continued: {}", path, mismatches[0]),
                  details + "--override continues all the same");
    }
    if (mismatches.empty()) {
      for (const std::string& name : saved.variables.LocalNames())
        result_.scope.Var(name) = std::move(saved.variables.Var(name));
      reader_->Seek(saved.state.position);
      carry_->Load(saved.state.carried);
    } else {
      TakeWhatFits(saved, mismatches);
    }
    steps_ = saved.state.step;
    step_->SetStep(saved.state.random_step);
    try {
      window_->Load(saved.state.progress);
    } catch (const Error&) {  // other metrics: they begin anew
      window_->Clear();
    }
    result_.evaluations = saved.state.evaluations;
    watch_->Load(saved.state.best);
    plan_.first_step = steps_;
    plan_.resumed_from = result_.snapshot_path = path;
    if (steps_ >= plan_.total_steps)
      plan_.note = fmt::format(
          "the snapshot is of step {} and the job ends at {}: it is only "
          "evaluated and saved",
          steps_, plan_.total_steps);
  }

  void TakeWhatFits(SavedSnapshot& saved, const std::vector<std::string>& mismatches) {
    for (const std::string& mismatch : mismatches)
      messages_.push_back(fmt::format("override: {}: {}", saved.path, mismatch));
    CompileOptions compile = options_.compile;
    compile.seed = config_.random_seed;
    if (programs_.startup.Root().NumOps() > 0)
      Executor(compile, ops_).Run(programs_.startup, result_.scope);
    const ProgramDesc& main = programs_.train.program;
    std::vector<std::string> left;
    for (const std::string& name : PersistableNames(main)) {
      const VarDesc& var = *main.Root().FindVar(name);
      const VarDesc* there = saved.main.Root().FindVar(name);
      Value* value = saved.variables.FindLocal(name);
      if (there && value && there->meta() == var.meta())
        result_.scope.Var(name) = std::move(*value);
      else
        left.push_back(name);
    }
    if (!left.empty())
      messages_.push_back("override: not in the snapshot, and new: " + Join(left, ", "));
    const Snapshot now = Now();
    const Snapshot& then = saved.state;
    const bool same_batches = then.rows == now.rows && then.batch_size == now.batch_size &&
                              then.drop_last == now.drop_last;
    if (same_batches) {
      reader_->Seek(then.position);
    } else {
      reader_->Seek(then.epoch * batches_per_epoch_);
      messages_.push_back(fmt::format("override: epoch {} begins anew", then.epoch + 1));
    }
    try {
      carry_->Load(then.carried);
    } catch (const Error&) {
      carry_->Reset();
    }
  }

  // --- the steps ---

  void Loop() {
    const bool overdue = steps_ > 0 ? EvaluationDue() : config_.initial_test;
    if (overdue && !AllEvaluated()) EvaluateAll();
    while (steps_ < plan_.total_steps && !result_.stopped && !watch_->should_stop()) {
      Step();
      const bool last = steps_ == plan_.total_steps;
      CheckStop(last);
      const bool improved =
          !result_.stopped && (EvaluationDue() || last) && EvaluateAll() && config_.best;
      if (watch_->should_stop()) Tell(watch_->StopMessage());
      const bool end = last || watch_->should_stop();
      const bool due = config_.snapshot_interval > 0 && steps_ % config_.snapshot_interval == 0;
      const bool asked = callbacks_.save && callbacks_.save();
      if (due || asked || improved || result_.stopped || (end && config_.snapshot_after_train))
        Save(improved);
    }
    if (!result_.stopped && !AllEvaluated()) EvaluateAll();
  }

  void CheckStop(bool last) {
    if (callbacks_.stop && callbacks_.stop()) result_.stopped = !last;
    const std::chrono::duration<double> passed = Clock::now() - began_;
    if (config_.max_seconds <= 0 || passed.count() < config_.max_seconds || last) return;
    result_.stopped = true;
    Tell(fmt::format("max_seconds: {:g} seconds have passed", config_.max_seconds));
  }

  // Runs the program on the next batch; returns its loss and adds its rows.
  double RunBatch(int64_t* rows) {
    if (reader_->position() % batches_per_epoch_ == 0) carry_->Reset();
    const std::vector<Tensor>& batch = reader_->Next();
    const std::vector<Tensor>& feeds = carry_->Append(feeder_->Bind(batch));
    const std::vector<Tensor>& out = step_->Run(result_.scope, feeds);
    const size_t sums = window_->fetches().size(), states = carry_->from().size();
    carry_->Take(std::span(out).subspan(sums, states));
    probe_->Take(std::span(out).subspan(sums + states));
    const double loss = ScalarOf(out[0], config_.loss);
    if (!std::isfinite(loss)) {
      ThrowInvalid(
          fmt::format("{}: the loss is {} at step {}; lower the learning rate, or look "
                      "for the first bad op with --check_nan_inf",
                      config_.source, loss, steps_ + 1));
    }
    window_->Add(out, batch[0].shape()[0]);
    *rows += batch[0].shape()[0];
    return loss;
  }

  void Step() {
    const int64_t epoch = reader_->position() / batches_per_epoch_;
    int64_t rows = 0;
    double loss = 0;
    for (int64_t run = 0; run < IterSize(); ++run) loss += RunBatch(&rows);
    loss /= static_cast<double>(IterSize());
    ++steps_;
    const bool due = steps_ % config_.display == 0;
    const bool show = due || steps_ == plan_.total_steps;
    if (show) {
      result_.loss = window_->MeanLoss();
      SetMetrics(window_->MeanMetrics());
      probe_->Look(result_.scope);
    }
    const StepReport report{plan_, steps_,   epoch, rows,
                            loss,  *window_, show,  probe_->learning_rates()};
    if (callbacks_.on_step) callbacks_.on_step(report);
    log_.Step(report);
    if (log_.WantsHistograms(steps_)) LogHistograms();
    if (show) {
      for (const std::string& line : probe_->Lines()) Tell(line);
    }
    if (due) window_->Clear();
    // The table is of the plan run last: take it before a smaller batch brings another plan.
    const bool epoch_ends =
        reader_->position() % batches_per_epoch_ >= batches_per_epoch_ - IterSize();
    if (options_.compile.profile && rows == config_.batch_size * IterSize() && epoch_ends)
      result_.profile = step_->ProfileTable();
  }

  void SetMetrics(const std::vector<double>& values) {
    result_.metrics.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      result_.metrics[i] = {plan_.metric_names[i], values[i]};
  }

  void LogHistograms() {
    for (const std::string& name : programs_.train.program.Parameters())
      log_.Histogram(steps_, "parameters/" + name, result_.scope.Get(name));
    for (const auto& [name, gradient] : probe_->Gradients())
      log_.Histogram(steps_, "gradients/" + name, gradient);
  }

  void Tell(const std::string& line) {
    if (callbacks_.on_message) callbacks_.on_message(line);
    log_.Message(steps_, line);
  }

  // --- evaluations and snapshots ---

  bool EvaluationDue() const {
    if (config_.test_interval > 0) return steps_ % config_.test_interval == 0;
    const int64_t now = reader_->position(), before = now - IterSize();  // of a step that was done
    return now / batches_per_epoch_ != before / batches_per_epoch_;
  }

  bool AllEvaluated() const {
    return std::all_of(tests_.begin(), tests_.end(), [this](const TestSet& test) {
      return std::any_of(result_.evaluations.begin(), result_.evaluations.end(),
                         [&](const auto& e) { return e.set == test.name && e.step == steps_; });
    });
  }

  // Returns whether the watched value is the best so far. Sets `stopped` when the user did not want
  // to wait.
  bool EvaluateAll() {
    const Training& training = programs_.training;
    training.UseAverages(result_.scope);
    const bool best = EvaluateSets();
    training.UseParameters(result_.scope);
    if (result_.stopped) return best;
    const auto value = [this](const std::string& metric) { return FindValue(metric)->value; };
    for (const std::string& line : training.AfterEvaluation(result_.scope, value)) Tell(line);
    return best;
  }

  // That of the first set of test data, by its printed name ("": the first); nullptr: none.
  const NamedValue* FindValue(const std::string& metric) const {
    for (const EvaluationRecord& record : result_.evaluations) {
      if (record.set != tests_[0].name) continue;
      for (const NamedValue& value : record.values)
        if (metric.empty() || value.name == metric) return &value;
    }
    return nullptr;
  }

  bool EvaluateSets() {
    bool best = false;
    for (TestSet& test : tests_) {
      if (!test.evaluator->Run(result_.scope, callbacks_.stop)) {
        result_.stopped = true;
        return best;
      }
      const std::vector<double> values = test.evaluator->Values();
      EvaluationRecord record{test.name, steps_, {}};
      for (size_t i = 0; i < values.size(); ++i)
        record.values.push_back({test.value_names[i], values[i]});
      const bool improved = watch_->watches(test.name) && watch_->Add(steps_, record.values);
      best = best || improved;
      const int64_t epoch = std::max<int64_t>(reader_->position() - 1, 0) / batches_per_epoch_;
      const EvalReport report{plan_,         test.name, steps_, epoch, test.evaluator->rows(),
                              record.values, improved};
      if (callbacks_.on_eval) callbacks_.on_eval(report);
      log_.Eval(report);
      Remember(std::move(record));
    }
    return best;
  }

  void Remember(EvaluationRecord record) {
    for (EvaluationRecord& old : result_.evaluations) {
      if (old.set != record.set) continue;
      old = std::move(record);
      return;
    }
    result_.evaluations.push_back(std::move(record));
  }

  void Save(bool best) {
    const std::string directory = config_.SnapshotDirectory();
    if (directory.empty()) return;
    result_.snapshot_path =
        WriteSnapshot(directory, Now(), programs_.train.program, programs_.startup, result_.scope,
                      config_.text, config_.keep_snapshots, best);
    if (callbacks_.on_snapshot) callbacks_.on_snapshot(result_.snapshot_path);
    log_.Snapshot(steps_, result_.snapshot_path);
  }

  // --- the end ---

  void Finish() {
    result_.steps = steps_;
    if (options_.compile.profile && result_.profile.empty() && steps_ > plan_.first_step)
      result_.profile = step_->ProfileTable();
    if (!result_.stopped && config_.best && config_.best->restore) RestoreBest();
    result_.best = watch_->best();
    TakeEvaluation();
    if (!result_.stopped) {
      programs_.training.UseAverages(result_.scope);
      WriteModels(config_, programs_, &result_);
      programs_.training.UseParameters(result_.scope);
    }
    log_.End(steps_, result_.stopped);
    result_.main = std::move(programs_.train.program);
    result_.startup = std::move(programs_.startup);
    result_.test = programs_.tests.empty() ? std::move(programs_.deploy.program)
                                           : std::move(programs_.tests[0].program);
  }

  void RestoreBest() {
    const std::string path = BestSnapshot(config_.SnapshotDirectory());
    if (path.empty() || watch_->best().step == steps_) return;
    SavedSnapshot saved = ReadSnapshot(path);
    for (const std::string& name : PersistableNames(programs_.train.program))
      result_.scope.Var(name) = std::move(saved.variables.Var(name));
    Tell(fmt::format("restored {}: {}={:.6g} at step {}", path, watch_->best().metric,
                     watch_->best().value, watch_->best().step));
    EvaluateAll();
  }

  void TakeEvaluation() {
    if (tests_.empty()) return;
    for (const EvaluationRecord& record : result_.evaluations) {
      if (record.set != tests_[0].name) continue;
      const bool has_loss = programs_.tests[0].has_loss;
      if (has_loss) result_.loss = record.values[0].value;
      result_.metrics.assign(record.values.begin() + (has_loss ? 1 : 0), record.values.end());
    }
  }

  const JobConfig& config_;
  const TrainOptions& options_;
  const TrainCallbacks& callbacks_;
  const OpRegistry& ops_;
  const Clock::time_point began_;
  std::vector<std::unique_ptr<DirectoryLock>> locks_;
  TrainPlan plan_;
  TrainResult result_;
  Programs programs_;
  DataSourcePtr train_data_;
  std::optional<BatchReader> reader_;
  int64_t batches_per_epoch_ = 0;
  std::optional<Carry> carry_;
  std::optional<Feeder> feeder_;
  std::optional<PreparedProgram> step_;
  std::vector<TestSet> tests_;
  std::optional<Window> window_;
  std::optional<Probe> probe_;
  std::optional<Watch> watch_;
  RunLog log_;
  std::vector<std::string> messages_;  // for the user, once the run has been announced
  int64_t steps_ = 0;
};

}  // namespace

TrainResult RunJob(const JobConfig& config, const TrainOptions& options,
                   const TrainCallbacks& callbacks) {
  return Job(config, options, callbacks).Run();
}

}  // namespace coracle
