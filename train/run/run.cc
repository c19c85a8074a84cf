#include <coracle/framework/base/text.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/progress.h>
#include <coracle/train/run/run.h>
#include <coracle/train/run/stop_signal.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>

namespace coracle {
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
  const std::vector<NamedValue> values = EvaluateSavedModel(model, job, options, &profile);
  out << Printable(profile) << head << FormatValues(values) << std::endl;
  return AllFinite(values);
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

// Returns whether all final values are finite.
bool PrintFinal(const JobConfig& job, const TrainResult& result, Progress& progress) {
  bool finite = std::isfinite(result.loss) && AllFinite(result.metrics);
  for (size_t i = 1; i < result.evaluations.size(); ++i) {  // of the other test sets
    const EvaluationRecord& evaluation = result.evaluations[i];
    progress.Line(fmt::format("final {}:{}", evaluation.set, FormatValues(evaluation.values)));
    finite &= AllFinite(evaluation.values);
  }
  std::string line = "final: " + FormatResults(result.loss, result.metrics, job.loss_name);
  if (result.non_finite_steps > 0) {
    line += fmt::format(" (the loss was not finite in {} of {} steps, first at step {})",
                        result.non_finite_steps, result.steps, result.first_non_finite_step);
  }
  progress.Line(line);
  return finite;
}

}  // namespace

int TrainAndReport(const JobConfig& job, const TrainOptions& options, std::ostream& out,
                   bool terminal, int width) {
  Progress progress(out, terminal, width);
  const QuietControlKeys quiet(terminal);
  StopSignal signal(job.signals);
  TrainCallbacks callbacks = progress.Callbacks();
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
    const bool finite = PrintFinal(job, result, progress) && result.non_finite_steps == 0;
    return finite ? kRunDone : kRunNotFinite;
  }
  const std::string why = result.time_up
                              ? fmt::format("time is up: {} seconds", FormatNumber(job.max_seconds))
                              : fmt::format("interrupted by {}", NameOf(signal.signal()));
  progress.Line(fmt::format("{}: step={} snapshot={}; continue with --resume", why, result.steps,
                            result.snapshot_path.empty() ? "none" : result.snapshot_path));
  return result.time_up ? kRunDone : kRunSignalled + signal.signal();
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

}  // namespace coracle
