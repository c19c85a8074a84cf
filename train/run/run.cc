#include <coracle/communication/communicator.h>
#include <coracle/communication/rank_threads.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/progress.h>
#include <coracle/train/run/evaluation/saved_evaluation.h>
#include <coracle/train/run/ranks/same_job.h>
#include <coracle/train/run/run.h>
#include <coracle/train/run/stop_signal.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

void PrintFiles(const TrainResult& result, Progress& progress) {
  if (!result.main_path.empty())
    progress.Line(fmt::format("programs {} {}", result.main_path, result.startup_path));
  if (!result.dump_path.empty()) progress.Line("dump " + result.dump_path);
  if (!result.snapshot_path.empty()) {
    std::string directory = std::filesystem::path(result.snapshot_path).parent_path().string();
    progress.Line(fmt::format("snapshots {} (last {})", directory, result.snapshot_path));
  }
  if (!result.eval_path.empty()) progress.Line("evaluation model " + result.eval_path);
  if (!result.model_path.empty()) progress.Line("inference model " + result.model_path);
  if (!result.int8_eval_path.empty())
    progress.Line("evaluation model in integers " + result.int8_eval_path);
  if (!result.int8_model_path.empty())
    progress.Line("inference model in integers " + result.int8_model_path);
  if (!result.vocabulary_path.empty()) progress.Line("vocabulary " + result.vocabulary_path);
}

bool AllFinite(const std::vector<NamedValue>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](const NamedValue& value) { return std::isfinite(value.value); });
}

// Returns whether all values are finite.
bool TestOne(const std::string& model, const JobConfig& job, const EvaluateOptions& options,
             const std::string& head, std::ostream& out) {
  std::string profile;
  const Measured measured = MeasureSavedModel(model, job, options, &profile);
  out << Printable(profile) << head << FormatValues(measured.values) << "\n";
  for (const ConfusionMatrix& confusion : measured.confusions)
    out << FormatConfusion(confusion, "whose counts `coracle report` shows") << "\n";
  out.flush();
  return AllFinite(measured.values);
}

const char* NameOf(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    default:
      return "SIGHUP";
  }
}

// The signal that stopped this rank; SIGTERM if another rank received the signal.
int SignalOf(const StopSignal& signal) { return signal.requested() ? signal.signal() : SIGTERM; }

// Trains on a rank that prints nothing.
int TrainSilently(const JobConfig& job, const TrainOptions& options) {
  StopSignal signal(job.signals);
  TrainCallbacks callbacks;
  callbacks.stop = [&signal] { return signal.requested(); };
  callbacks.save = [&signal] { return signal.ConsumeSnapshotRequest(); };
  const TrainResult result = RunJob(job, options, callbacks);
  return result.stopped && !result.time_up ? kRunSignalled + SignalOf(signal) : kRunDone;
}

// Returns whether all final values are finite.
bool PrintFinal(const JobConfig& job, const TrainResult& result, int64_t first_step,
                Progress& progress) {
  // The job was finished before it was resumed, when the last means had just been displayed, and it
  // has no test data.
  if (first_step == result.steps && result.evaluations.empty() && std::isnan(result.loss)) {
    progress.Line("final: nothing was left to train, and there is no test data to evaluate");
    return true;
  }
  bool finite = std::isfinite(result.loss) && AllFinite(result.metrics);
  for (size_t i = 1; i < result.evaluations.size(); ++i) {  // the other test sets
    const EvaluationRecord& evaluation = result.evaluations[i];
    progress.Line(fmt::format("final {}:{}", evaluation.set, FormatValues(evaluation.values)));
    finite &= AllFinite(evaluation.values);
  }
  if (!result.int8_values.empty()) {
    progress.Line("final in integers:" + FormatValues(result.int8_values));
    finite &= AllFinite(result.int8_values);
  }
  std::string line = "final: " + FormatResults(result.loss, result.metrics, job.loss_name);
  if (result.non_finite_steps > 0) {
    line += fmt::format(" (the loss was not finite in {} of {} steps, first at step {})",
                        result.non_finite_steps, result.steps, result.first_non_finite_step);
  }
  progress.Line(line);
  return finite;
}

// Prints what a run reports.
TrainCallbacks PrintedOn(Progress& progress) {
  TrainCallbacks callbacks;
  callbacks.on_start = [&](const TrainPlan& plan) { progress.Start(plan); };
  callbacks.on_step = [&](const StepReport& report) { progress.Step(report); };
  callbacks.on_eval = [&](const EvalReport& report) { progress.Eval(report); };
  callbacks.on_snapshot = [&](const std::string& path) { progress.Snapshot(path); };
  callbacks.on_message = [&](const std::string& line) { progress.Line(line); };
  return callbacks;
}

}  // namespace

int TrainAndReport(const JobConfig& job, const TrainOptions& options, std::ostream& out,
                   bool terminal, int width) {
  if (options.communicator && options.communicator->rank() > 0) return TrainSilently(job, options);
  Progress progress(out, terminal, width);
  const QuietControlKeys quiet(terminal);
  StopSignal signal(job.signals);
  TrainCallbacks callbacks = PrintedOn(progress);
  int64_t first_step = 0;
  callbacks.on_start = [&](const TrainPlan& plan) {
    first_step = plan.first_step;
    progress.Start(plan);
  };
  callbacks.stop = [&signal] { return signal.requested(); };
  callbacks.save = [&signal] { return signal.ConsumeSnapshotRequest(); };
  TrainResult result;
  try {
    result = RunJob(job, options, callbacks);
  } catch (...) {
    progress.EndBar();
    throw;
  }
  if (!result.profile.empty()) progress.Table(result.profile);
  PrintFiles(result, progress);
  if (!result.stopped) {
    const bool finite =
        PrintFinal(job, result, first_step, progress) && result.non_finite_steps == 0;
    return finite ? kRunDone : kRunNotFinite;
  }
  const std::string why = result.time_up
                              ? fmt::format("time is up: {} seconds", FormatNumber(job.max_seconds))
                              : fmt::format("interrupted by {}", NameOf(SignalOf(signal)));
  progress.Line(fmt::format("{}: step={} snapshot={}; continue with --resume", why, result.steps,
                            result.snapshot_path.empty() ? "none" : result.snapshot_path));
  return result.time_up ? kRunDone : kRunSignalled + SignalOf(signal);
}

int TrainOnThreads(int ranks, const JobConfig& job, const TrainOptions& options, std::ostream& out,
                   bool terminal, int width, double exchange_timeout) {
  RequireRowForEachRank(job, ranks);
  int code = kRunDone;
  RunOnThreads(ranks, exchange_timeout, [&](std::shared_ptr<Communicator> communicator) {
    TrainOptions own = options;
    own.communicator = std::move(communicator);
    if (own.communicator->rank() == 0)
      code = TrainAndReport(job, own, out, terminal, width);
    else
      RunJob(job, own, {});
  });
  return code;
}

int TestAndReport(const std::string& model, const JobConfig& job, const EvaluateOptions& options,
                  std::ostream& out) {
  const auto code = [](bool finite) { return finite ? kRunDone : kRunNotFinite; };
  std::vector<TestSetConfig> sets = job.TestSets();
  if (!options.test_set.empty() || sets.empty())
    return code(TestOne(model, job, options, "test:", out));
  std::rotate(sets.begin(), sets.begin() + 1, sets.end());
  bool finite = true;
  for (const TestSetConfig& set : sets) {
    EvaluateOptions one = options;
    one.test_set = set.name;
    const bool last = &set == &sets.back();
    finite &= TestOne(model, job, one,
                      last ? "test:" : fmt::format("test {}:", PrintableLine(set.name)), out);
  }
  return code(finite);
}

}  // namespace coracle::inline internal
