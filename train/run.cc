#include <coracle/framework/base/text.h>
#include <coracle/train/progress.h>
#include <coracle/train/run.h>
#include <coracle/train/stop_signal.h>
#include <fmt/format.h>

#include <algorithm>
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

void TestOne(const std::string& model, const JobConfig& job, const EvaluateOptions& options,
             std::string line, std::ostream& out) {
  std::string profile;
  for (const NamedValue& result : EvaluateSavedModel(model, job, options, &profile))
    line += fmt::format(" {}={:.6g}", result.name, result.value);
  out << Printable(profile) << PrintableLine(line) << std::endl;
}

}  // namespace

bool TrainAndReport(const JobConfig& job, const TrainOptions& options, std::ostream& out,
                    bool terminal, int width) {
  Progress progress(out, terminal, width);
  StopSignal signal(job.signals);
  TrainCallbacks callbacks = progress.Callbacks();
  callbacks.stop = [&signal] { return signal.requested(); };
  callbacks.save = [&signal] { return signal.TakeSnapshotRequest(); };
  TrainResult result;
  try {
    result = RunJob(job, options, callbacks);
  } catch (...) {
    progress.EndBar();
    throw;
  }
  if (!result.profile.empty()) progress.Line(result.profile);
  PrintFiles(result, progress);
  if (result.stopped) {
    progress.Line(fmt::format("stopped: step={} snapshot={}; continue with --resume", result.steps,
                              result.snapshot_path.empty() ? "none" : result.snapshot_path));
    return false;
  }
  for (size_t i = 1; i < result.evaluations.size(); ++i) {  // of the other test sets
    const EvaluationRecord& evaluation = result.evaluations[i];
    std::string line = fmt::format("final {}:", evaluation.set);
    for (const NamedValue& value : evaluation.values)
      line += fmt::format(" {}={:.6g}", value.name, value.value);
    progress.Line(line);
  }
  progress.Line("final: " + FormatResults(result.loss, result.metrics, job.loss_name));
  return true;
}

void TestAndReport(const std::string& model, const JobConfig& job, const EvaluateOptions& options,
                   std::ostream& out) {
  std::vector<TestSetConfig> sets = job.TestSets();
  if (!options.test_set.empty() || sets.empty()) return TestOne(model, job, options, "test:", out);
  std::rotate(sets.begin(), sets.begin() + 1, sets.end());
  for (const TestSetConfig& set : sets) {
    EvaluateOptions one = options;
    one.test_set = set.name;
    const bool last = &set == &sets.back();
    TestOne(model, job, one, last ? "test:" : fmt::format("test {}:", set.name), out);
  }
}

}  // namespace coracle
