#include <coracle/distribute/ranks.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/run_log.h>
#include <coracle/train/run/non_finite.h>
#include <coracle/train/run/outputs.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/rank_programs.h>
#include <coracle/train/run/rank_times.h>
#include <coracle/train/run/same_data.h>
#include <coracle/train/run/same_job.h>
#include <coracle/train/run/start.h>
#include <coracle/train/run/test_sets.h>
#include <coracle/train/run/train_step.h>
#include <coracle/train/run/trainer.h>
#include <coracle/train/run/validate.h>
#include <coracle/train/run/watch.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

namespace coracle {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The directory of a snapshot.
std::string DirectoryOf(const std::string& snapshot) {
  const std::string directory = fs::path(snapshot).lexically_normal().parent_path().string();
  return directory.empty() ? "." : directory;
}

// A run from its beginning to its end: the order of its actions, and its reports.
class Job {
 public:
  Job(const JobConfig& config, const TrainOptions& options, const TrainCallbacks& callbacks)
      : config_(config),
        options_(options),
        callbacks_(callbacks),
        ops_(options.ops ? *options.ops : DefaultOps()),
        executor_(options.compile, ops_),
        ranks_(options.communicator),
        began_(Clock::now()),
        non_finite_(config) {
    if (ranks_.first()) log_.emplace(config);
  }

  TrainResult Run() {
    CheckJob(config_);
    if (ranks_.several()) RequireSameJob(ranks_, config_, options_);
    if (ranks_.first()) OpenDirectories();
    const DataSourcePtr data = OpenTrainData(config_);
    CheckStreams(config_, *data, config_.batch_size);
    programs_ = BuildPrograms(config_, options_);
    RequireSameData(ranks_, data, "data");
    Distribute();
    Compile(data);
    MakePlan(*data);
    Validate();
    Begin();
    if (ranks_.first()) WritePrograms(config_, programs_, *data, ops_, &result_);
    CompareParameters();
    Loop();
    Finish();
    return std::move(result_);
  }

 private:
  // --- before the first step ---

  void OpenDirectories() {
    locks_ = OpenOutputDirectories(config_);
    resumes_in_place_ = options_.resume && ResumesInPlace();
    if (!resumes_in_place_ && !options_.overwrite) RefuseOtherOutput(config_);
  }

  // Makes the programs for one rank of several.
  void Distribute() {
    const ProgramDesc& main = programs_.train.program;
    ranks_.RequireSame("program", SerializeProgram(main) + SerializeProgram(programs_.startup),
                       "all ranks must read the same model");
    if (!ranks_.several()) return;
    programs_.of_rank = MakeRankPrograms(config_, programs_, ranks_.size(), ops_, &warnings_);
    if (!programs_.of_rank->local_sgd) return;
    average_.emplace(executor_.Prepare(programs_.of_rank->local_sgd->average));
    average_->SetCommunicator(ranks_.communicator());
  }

  // Whether all ranks have the same parameters. Between two averages of local SGD they do not.
  bool RanksAreTheSame() const {
    if (!average_) return true;
    return result_.scope.Get(programs_.of_rank->local_sgd->counter).Item<int64_t>() == 0;
  }
  void MakeRanksTheSame() {
    if (!RanksAreTheSame()) average_->Run(result_.scope);
    if (!programs_.of_rank) return;
    own_.clear();
    for (const std::string& name : programs_.of_rank->local)
      if (result_.scope.Has(name)) own_.emplace_back(name, result_.scope.Get(name).Clone());
    AverageLocals(ranks_, programs_.of_rank->local, result_.scope);
  }
  // Restores the rank's own statistics, so that snapshots and evaluations do not change the last
  // bits of later results.
  void TakeOwnStatistics() {
    for (auto& [name, value] : own_) result_.scope.Set(name, std::move(value));
    own_.clear();
  }
  NamedTensors StatisticsOfRanks() const {
    std::string bytes;
    for (const auto& [name, value] : own_)
      bytes.append(static_cast<const char*>(value.raw()), value.nbytes());
    const std::vector<std::string> all = ranks_.Gather(bytes);
    NamedTensors gathered;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const char* from = all[rank].data();
      for (const auto& [name, value] : own_) {
        Tensor& copy =
            gathered.emplace_back(fmt::format("{}@{}", name, rank), value.Clone()).second;
        std::memcpy(copy.raw(), from, copy.nbytes());
        from += copy.nbytes();
      }
    }
    return gathered;
  }

  void CompareParameters() const {
    if (programs_.of_rank && options_.check_parameters > 0)
      RequireSameParameters(ranks_, programs_, result_.scope, steps_);
  }

  // Whether the snapshot to resume belongs to the run whose output is in the job's directories. A
  // missing snapshot is reported elsewhere.
  bool ResumesInPlace() const {
    const std::string path = FindSnapshot(options_.resume_from);
    std::error_code none;
    return path.empty() || fs::equivalent(DirectoryOf(path), config_.SnapshotDirectory(), none);
  }

  void Compile(const DataSourcePtr& data) {
    CompileOptions compile = options_.compile;
    compile.seed = config_.random_seed;
    step_.emplace(config_, programs_.RunTrain(), data, Executor(compile, ops_), ranks_);
    compile.profile = false;
    // With several ranks, no rank may leave in the middle of a program.
    if (!ranks_.several()) compile.stop = callbacks_.stop;
    tests_.emplace(config_, programs_.RunTests(), Executor(compile, ops_), ranks_);
    watch_.emplace(config_, tests_->names(), tests_->value_names());
    for (const auto& [metric, place] : programs_.training.Watched()) CheckWatched(metric, place);
  }

  // Checks the metric of a plateau.
  void CheckWatched(const std::string& metric, const std::string& place) const {
    if (tests_->empty()) {
      ThrowInvalid(fmt::format("{}: plateau needs test data, whose evaluations it watches", place));
    }
    const std::vector<std::string> names = tests_->value_names()[0];
    if (metric.empty() || std::find(names.begin(), names.end(), metric) != names.end()) return;
    ThrowInvalid(fmt::format("{}: plateau: evaluations have no {}; they have {}{}", place,
                             Quote(metric), Join(names, ", "), DidYouMean(metric, names)));
  }

  void MakePlan(const DataSource& data) {
    plan_.job = config_.name;
    plan_.data = data.Describe();
    plan_.steps_per_epoch = step_->steps_per_epoch();
    plan_.total_steps = step_->TotalSteps();
    plan_.loss_name = config_.loss_name;
    for (const MetricConfig& metric : programs_.train.metrics)
      plan_.metric_names.push_back(metric.name);
    const ProgramDesc& main = programs_.train.program;
    for (const std::string& name : main.Parameters())
      plan_.parameters += main.Root().FindVar(name)->shape().numel();
  }

  void Validate() {
    for (std::string& line :
         ValidateJob(config_, programs_, plan_.total_steps, plan_.steps_per_epoch))
      warnings_.push_back(std::move(line));
    const std::string directory = config_.SnapshotDirectory();
    const std::optional<uint64_t> free = directory.empty() ? std::nullopt : FreeBytes(directory);
    if (!free) return;
    const std::string line =
        CheckDiskSpace(config_, SnapshotBytes(programs_.train.program), *free, plan_.total_steps);
    if (!line.empty()) warnings_.push_back(line);
  }

  void Begin() {
    const Start start =
        StartRun(config_, options_, programs_,
                 {ranks_, result_.scope, *step_, *watch_, non_finite_, result_.evaluations});
    steps_ = plan_.first_step = compared_ = start.step;
    plan_.resumed_from = result_.snapshot_path = start.resumed_from;
    plan_.note = start.note;
    if (!start.resumed_from.empty() && steps_ >= plan_.total_steps) {
      plan_.note = fmt::format(
          "the snapshot is of step {} and the job ends at {}: it is only evaluated and saved",
          steps_, plan_.total_steps);
      result_.loss = step_->window().MeanLoss();
      SetMetrics(step_->window().MeanMetrics());
    }
    step_->probe().Begin(result_.scope);
    tests_->Try(result_.scope);
    ranks_.Any(false);  // after this, rank 0 may remove the files that all have read
    if (!ranks_.first()) return KeepBestOfFirst("");
    if (options_.overwrite && !resumes_in_place_) RemoveOtherOutput(config_);
    const std::string line = KeepBestSnapshot();
    if (!line.empty()) warnings_.push_back(line);
    KeepBestOfFirst(line);
    if (callbacks_.on_start) callbacks_.on_start(plan_);
    log_->Start(plan_, programs_.train.program);
    for (const std::string& line : start.messages) ReportLine(line);
    for (const std::string& line : warnings_) ReportLine(line);
  }

  // All ranks drop the best result if rank 0 dropped it.
  void KeepBestOfFirst(const std::string& line) {
    if (!ranks_.FromFirst(line).empty() && !ranks_.first()) watch_->Forget();
  }

  // Copies the snapshot of the best evaluation from where the run was resumed. Returns a line for
  // the user if it was not found.
  std::string KeepBestSnapshot() {
    const std::string directory = config_.SnapshotDirectory();
    if (!config_.best || directory.empty() || plan_.resumed_from.empty()) return "";
    const BestRecord best = watch_->best();
    if (SetBest(directory, best.metric.empty() ? "" : DirectoryOf(plan_.resumed_from), best.step))
      return "";
    if (best.metric.empty()) return "";
    watch_->Forget();
    return fmt::format("warning: the best so far, {}={} at step {}, is dropped: it has no snapshot",
                       best.metric, FormatNumber(best.value), best.step);
  }

  // --- the steps ---

  void Loop() {
    const bool overdue = steps_ > 0 ? EvaluationDue() : config_.initial_test;
    if (overdue) EvaluateMissing();
    times_.emplace(ranks_);
    while (steps_ < plan_.total_steps && !result_.stopped && !watch_->should_stop()) {
      Step();
      const bool last = steps_ == plan_.total_steps;
      CheckStop(last);
      const bool improved =
          !result_.stopped && (EvaluationDue() || last) && EvaluateAll() && config_.best;
      if (watch_->should_stop()) ReportLine(watch_->StopMessage());
      const bool end = last || watch_->should_stop();
      const bool due = config_.snapshot_interval > 0 && steps_ % config_.snapshot_interval == 0;
      const bool asked = ranks_.Any(callbacks_.save && callbacks_.save());
      if (due || asked || improved || result_.stopped || (end && config_.snapshot_after_train))
        Save(improved);
    }
    if (!result_.stopped) EvaluateMissing();
  }

  // Evaluates before or after the steps of this run. An existing snapshot of this step does not
  // have this evaluation yet.
  void EvaluateMissing() {
    if (!AllEvaluated() && EvaluateAll() && config_.best) Save(true);
  }

  // If the ranks differ, a run stops only after their next average. An average added by the stop
  // would change the result of the training.
  void CheckStop(bool last) {
    if (!last && !RanksAreTheSame()) return;
    if (ranks_.Any(callbacks_.stop && callbacks_.stop())) result_.stopped = !last;
    if (config_.max_seconds <= 0) return;
    const std::chrono::duration<double> passed = Clock::now() - began_;
    if (!ranks_.Any(passed.count() >= config_.max_seconds)) return;
    if (last || result_.stopped) return;
    result_.stopped = result_.time_up = true;
    ReportLine(
        fmt::format("max_seconds: {} seconds have passed", FormatNumber(config_.max_seconds)));
  }

  void Step() {
    TraceSpan span("train", "step");
    span.Set("step", steps_ + 1);
    const TrainStep::Result done = step_->Run(result_.scope);
    ++steps_;
    Warn([&] { return non_finite_.Step(steps_, done.loss); });
    const bool due = steps_ % config_.display == 0;
    const bool show = due || steps_ == plan_.total_steps;
    const int64_t every = options_.check_parameters;
    if (every > 0 && steps_ / every != compared_ / every && RanksAreTheSame()) {
      compared_ = steps_;
      CompareParameters();
    }
    std::vector<double> waited;
    if (show) {
      step_->window().Merge(ranks_);
      waited = times_->TakeWaited();
      result_.loss = step_->window().MeanLoss();
      SetMetrics(step_->window().MeanMetrics());
      step_->probe().Update(result_.scope);
    }
    Report({plan_, steps_, done.epoch, done.rows, done.loss, step_->window(), show,
            step_->probe().learning_rates(), step_->probe().clips(), std::move(waited)});
    if (due) {
      step_->window().Clear();
      step_->probe().Restart(result_.scope);
    }
    // The table covers the last plan: take it before a smaller batch makes another plan.
    const bool whole = done.rows == config_.batch_size * config_.training.iter_size;
    if (options_.compile.profile && whole && step_->EpochIsEnding())
      result_.profile = step_->ProfileTable();
  }

  void Report(const StepReport& report) {
    const int64_t interval = config_.log.histogram_interval;
    const bool histograms = interval > 0 && steps_ % interval == 0;
    std::vector<std::pair<std::string, Tensor>> gradients;
    if (histograms) gradients = step_->probe().Gradients();  // gathered from all ranks
    if (!ranks_.first()) return;
    if (callbacks_.on_step) callbacks_.on_step(report);
    log_->Step(report);
    if (histograms && log_->WantsHistograms(steps_)) LogHistograms(gradients);
    if (!report.show) return;
    for (const std::string& line : step_->probe().Lines()) ReportLine(line);
  }

  void SetMetrics(const std::vector<double>& values) {
    result_.metrics.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      result_.metrics[i] = {plan_.metric_names[i], values[i]};
  }

  void LogHistograms(const std::vector<std::pair<std::string, Tensor>>& gradients) {
    for (const std::string& name : programs_.train.program.Parameters())
      log_->Histogram(steps_, "parameters/" + name, result_.scope.Get(name));
    for (const auto& [name, gradient] : gradients)
      log_->Histogram(steps_, "gradients/" + name, gradient);
  }

  // Reports the line that f returns. An error is also logged, since nothing else will end the log.
  template <class F>
  void Warn(F f) {
    try {
      if (const std::string line = f(); !line.empty()) ReportLine(line);
    } catch (const Error& e) {
      if (log_) log_->Message(steps_, e.message());
      throw;
    }
  }

  void RequireFiniteParameters() {
    Warn([&] { return non_finite_.Parameters(programs_.train.program, result_.scope, steps_); });
  }

  void ReportLine(const std::string& line) {
    if (!ranks_.first()) return;
    if (callbacks_.on_message) callbacks_.on_message(line);
    log_->Message(steps_, line);
  }

  // --- evaluations and snapshots ---

  bool EvaluationDue() const {
    return config_.test_interval > 0 ? steps_ % config_.test_interval == 0 : step_->EpochEnded();
  }

  // Whether a longer run would make this evaluation too. An evaluation at the end, off the
  // interval, does not lower a rate or count for early_stop; otherwise the resumed run would differ
  // from the longer one.
  bool Counts() const { return steps_ == 0 || EvaluationDue(); }

  bool AllEvaluated() const {
    const std::vector<std::string> names = tests_->names();
    return std::all_of(names.begin(), names.end(), [this](const std::string& name) {
      const EvaluationRecord* record = FindEvaluation(result_.evaluations, name);
      return record && record->step == steps_;
    });
  }

  // Returns whether the watched value is the best so far. Sets `stopped` if early_stop ends
  // the run.
  bool EvaluateAll() {
    const bool best = RunTests();
    if (result_.stopped || !Counts()) return best;
    const auto value = [this](const std::string& metric) { return FirstSetValue(metric); };
    for (const std::string& line : programs_.training.AfterEvaluation(result_.scope, value))
      ReportLine(line);
    return best;
  }

  bool RunTests() {
    TraceSpan span("train", "evaluation");
    span.Set("step", steps_);
    const AppendedTraining& training = programs_.training;
    MakeRanksTheSame();
    training.UseAverages(executor_, result_.scope);
    bool best = false;
    const auto tell = [&](const std::string& set, int64_t rows, std::vector<NamedValue> values) {
      best = RecordEvaluation({set, steps_, std::move(values)}, rows) || best;
    };
    if (!tests_->Run(result_.scope, callbacks_.stop, tell)) result_.stopped = true;
    training.UseParameters(executor_, result_.scope);
    TakeOwnStatistics();
    return best;
  }

  bool RecordEvaluation(EvaluationRecord record, int64_t rows) {
    const bool best =
        !restored_ && watch_->watches(record.set) && watch_->Add(steps_, record.values, Counts());
    const EvalReport report{plan_, record.set,    steps_, step_->last_epoch(),
                            rows,  record.values, best,   restored_};
    if (ranks_.first()) {
      if (callbacks_.on_eval) callbacks_.on_eval(report);
      log_->Eval(report);
    }
    ReportNonFinite(record);
    Remember(std::move(record), &result_.evaluations);
    return best;
  }

  void ReportNonFinite(const EvaluationRecord& record) {
    for (const NamedValue& value : record.values) {
      if (value.name != config_.loss_name || std::isfinite(value.value)) continue;
      ReportLine(fmt::format("the loss on {} is {} at step {}", record.set,
                             FormatNumber(value.value), record.step));
    }
  }

  // The value with this printed name; "": the first value.
  double FirstSetValue(const std::string& metric) const {
    const auto& values = FindEvaluation(result_.evaluations, tests_->names()[0])->values;
    const auto named = [&metric](const NamedValue& v) {
      return metric.empty() || v.name == metric;
    };
    return std::find_if(values.begin(), values.end(), named)->value;
  }

  void Save(bool best) {
    const std::string directory = config_.SnapshotDirectory();
    if (directory.empty()) return;
    TraceSpan span("train", "snapshot");
    span.Set("step", steps_);
    MakeRanksTheSame();
    RequireFiniteParameters();
    TrainSnapshot snapshot;
    step_->window().Merge(ranks_);
    step_->Save(&snapshot);
    if (!own_.empty()) snapshot.of_ranks = StatisticsOfRanks();
    snapshot.job = config_.name;
    snapshot.step = steps_;
    snapshot.evaluations = result_.evaluations;
    snapshot.best = watch_->best();
    snapshot.non_finite = non_finite_.counts();
    JoinStates();
    if (ranks_.first()) {
      result_.snapshot_path =
          WriteSnapshot(directory, snapshot, programs_.train.program, programs_.startup,
                        result_.scope, config_.text, config_.keep_snapshots, best);
    }
    DropJoinedStates();
    TakeOwnStatistics();
    result_.snapshot_path = ranks_.FromFirst(result_.snapshot_path);
    if (!ranks_.first()) return;
    if (callbacks_.on_snapshot) callbacks_.on_snapshot(result_.snapshot_path);
    log_->Snapshot(steps_, result_.snapshot_path);
  }

  // Gathers the sharded states on rank 0, which saves them.
  void JoinStates() {
    if (programs_.of_rank) JoinShards(ranks_, programs_.of_rank->states, result_.scope);
  }
  void DropJoinedStates() {
    if (!programs_.of_rank) return;
    for (const ShardedState& state : programs_.of_rank->states) result_.scope.Erase(state.name);
  }

  // --- the end ---

  void Finish() {
    result_.steps = steps_;
    MakeRanksTheSame();
    if (options_.compile.profile && result_.profile.empty() && steps_ > plan_.first_step)
      result_.profile = step_->ProfileTable();
    if (options_.compile.profile) result_.profile += times_->Table();
    if (!result_.stopped && config_.best && config_.best->restore) RestoreBest();
    result_.best = watch_->best();
    RecordLastEvaluation();
    result_.non_finite_steps = non_finite_.counts().steps;
    result_.first_non_finite_step = non_finite_.counts().first;
    if (!result_.stopped) {
      RequireFiniteParameters();
      programs_.training.UseAverages(executor_, result_.scope);
      if (ranks_.first()) WriteModels(config_, programs_, &result_);
      programs_.training.UseParameters(executor_, result_.scope);
    }
    if (log_) log_->End(steps_, result_.stopped);
    JoinStates();
    ranks_.Any(false);  // no rank leaves before rank 0 has written all files
    result_.main = std::move(programs_.train.program);
    result_.startup = std::move(programs_.startup);
    result_.test = programs_.tests.empty() ? std::move(programs_.deploy.program)
                                           : std::move(programs_.tests[0].program);
  }

  void RestoreBest() {
    const BestRecord& best = watch_->best();
    if (best.metric.empty() || best.step == steps_) return;
    const std::string path = ranks_.FromFirst(BestSnapshot(config_.SnapshotDirectory()));
    SavedSnapshot saved = path.empty() ? SavedSnapshot() : ReadSameSnapshot(ranks_, path);
    if (path.empty() || saved.state.step != best.step) {
      ReportLine(
          fmt::format("warning: {}: there is no snapshot of the best evaluation, at step {}: the "
                      "parameters stay those of step {}",
                      config_.Place("best.restore"), best.step, steps_));
      return;
    }
    for (const std::string& name : PersistableNames(programs_.train.program))
      result_.scope.Var(name) = std::move(saved.variables.Var(name));
    if (programs_.of_rank) DivideStates(ranks_, programs_.of_rank->states, result_.scope);
    CompareParameters();
    ReportLine(fmt::format("restored {}: {}={} at step {}", path, best.metric,
                           FormatNumber(best.value), best.step));
    restored_ = true;
    RunTests();
  }

  void RecordLastEvaluation() {
    if (tests_->empty()) return;
    const EvaluationRecord* first = FindEvaluation(result_.evaluations, tests_->names()[0]);
    if (!first) return;
    const bool has_loss = programs_.tests[0].has_loss;
    if (has_loss) result_.loss = first->values[0].value;
    result_.metrics.assign(first->values.begin() + (has_loss ? 1 : 0), first->values.end());
  }

  const JobConfig& config_;
  const TrainOptions& options_;
  const TrainCallbacks& callbacks_;
  const OpRegistry& ops_;
  const Executor executor_;  // runs programs other than steps and tests
  const Ranks ranks_;
  const Clock::time_point began_;
  std::vector<std::unique_ptr<DirectoryLock>> locks_;
  std::vector<std::string> warnings_;
  TrainPlan plan_;
  TrainResult result_;
  Programs programs_;
  std::optional<TrainStep> step_;
  std::optional<TestSets> tests_;
  std::optional<Watch> watch_;
  std::optional<RankTimes> times_;  // measured from the first step
  NamedTensors own_;                // this rank's running statistics, while the scope has the means
  NonFiniteLosses non_finite_;
  std::optional<RunLog> log_;  // only on rank 0
  // The number of steps so far, and at the last comparison of parameters.
  int64_t steps_ = 0, compared_ = 0;
  std::optional<PreparedProgram> average_;  // averages local SGD immediately
  bool restored_ = false;                   // the best parameters have been restored
  bool resumes_in_place_ = false;  // the run continues in the directories of the resumed run
};

}  // namespace

TrainResult RunJob(const JobConfig& config, const TrainOptions& options,
                   const TrainCallbacks& callbacks) {
  return Job(config, options, callbacks).Run();
}

}  // namespace coracle
