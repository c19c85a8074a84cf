#include <coracle/communication/communicator.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/progress.h>
#include <coracle/train/run/run.h>
#include <coracle/train/run/same_job.h>
#include <coracle/train/run/stop_signal.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <exception>
#include <filesystem>
#include <thread>
#include <vector>

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

// Rethrows the first error that does not only report that another rank has left; else the first
// error. If only one rank failed by itself, the error names it.
void ThrowCause(const std::vector<std::exception_ptr>& errors) {
  std::vector<size_t> ranks;
  std::exception_ptr first;
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank]) continue;
    if (!first) first = errors[rank];
    try {
      std::rethrow_exception(errors[rank]);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kCancelled) ranks.push_back(rank);
    } catch (...) {
      ranks.push_back(rank);
    }
  }
  if (!first) return;
  try {
    std::rethrow_exception(ranks.empty() ? first : errors[ranks[0]]);
  } catch (const Error& e) {
    if (ranks.size() != 1) throw;
    throw e.WithPrefix(fmt::format("rank {}", ranks[0]));
  }
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
  if (options.communicator && options.communicator->rank() > 0) return TrainSilently(job, options);
  Progress progress(out, terminal, width);
  const QuietControlKeys quiet(terminal);
  StopSignal signal(job.signals);
  TrainCallbacks callbacks = progress.Callbacks();
  int64_t first_step = 0;
  callbacks.on_start = [&first_step, show = callbacks.on_start](const TrainPlan& plan) {
    first_step = plan.first_step;
    if (show) show(plan);
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
  auto communicators = ThreadCommunicators(ranks, exchange_timeout);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(errors.size());
  int code = kRunDone;
  const auto run = [&](size_t rank, std::unique_ptr<Communicator> communicator) {
    TrainOptions own = options;
    own.communicator = std::move(communicator);
    try {
      if (rank == 0)
        code = TrainAndReport(job, own, out, terminal, width);
      else
        RunJob(job, own, {});
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  };
  std::string failed;
  try {
    for (size_t rank = 1; rank < errors.size(); ++rank)
      threads.emplace_back(run, rank, std::move(communicators[rank]));
    run(0, std::move(communicators[0]));
  } catch (const std::exception& e) {
    failed = e.what();
    communicators.clear();  // so that the other ranks do not wait for this one
  }
  for (std::thread& thread : threads) thread.join();
  if (!failed.empty()) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{} ranks as threads: {}; start fewer, or processes on several "
                            "machines (mpirun)",
                            ranks, failed));
  }
  ThrowCause(errors);
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

}  // namespace coracle
