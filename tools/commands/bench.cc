#include <coracle/executor/frame/nan_check.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/bench_report.h>
#include <coracle/tools/bench_subject.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/process_ranks.h>
#include <coracle/tools/trace_file.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

namespace coracle::tools {
namespace {

constexpr int64_t kLeastRuns = 10;
constexpr int kMostClients = 1024;

struct BenchFlags {
  std::optional<int32_t> batch_size = {};
  SubjectFlags subject = {};
  double seconds = 3;
  int32_t concurrency = 1;
  bool json = false;
  TraceFlags trace = {};
};

Fields<BenchFlags> BenchFields() {
  return Fields<BenchFlags>("")
      .Add("batch_size", &BenchFlags::batch_size,
           "`N` for the unknown dimensions of drawn feeds (default: 1, or a job's own batch size)",
           LimitedRange(1, INT32_MAX))
      .Inline(&BenchFlags::subject, SubjectFields())
      .Add("seconds", &BenchFlags::seconds,
           "`N` seconds of timed runs for each number of threads, but at least ten runs",
           PositiveRange())
      .Add("concurrency", &BenchFlags::concurrency,
           "`N` clients that run the program at the same time, each in its own memory",
           ClosedRange(1, kMostClients))
      .Add("json", &BenchFlags::json, kJsonDoc)
      .Inline(&BenchFlags::trace, TraceFields());
}

template <class F>
double SecondsOf(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

LatencyOptions LatencyOptionsOf(const BenchFlags& flags) {
  LatencyOptions options;
  options.seconds = flags.seconds;
  options.runs = kLeastRuns;
  options.warm_up = std::min(0.5, flags.seconds / 4);
  // Traced runs are warm-up runs, because tracing would distort the times.
  if (!flags.trace.trace.empty())
    options.warm_up_runs = std::max(options.warm_up_runs, flags.trace.trace_runs);
  return options;
}

PreparedProgram Prepare(const CompileFlags& flags, BenchSubject& subject) {
  const Executor executor(CompileOptionsOf(flags));
  return subject.trains ? executor.Prepare(subject.program, subject.feeds, subject.fetches)
                        : executor.PrepareOwning(subject.program, subject.scope, subject.feeds,
                                                 subject.fetches);
}

bool AllFinite(const std::vector<Tensor>& results) {
  return std::all_of(results.begin(), results.end(), [](const Tensor& tensor) {
    return FindNonFinite(tensor.raw(), tensor.dtype(), tensor.numel()) < 0;
  });
}

// Clients that each have a copy of the program and of the scope, so that a program that changes its
// parameters changes only those of its client.
class Clients {
 public:
  Clients(const PreparedProgram& program, const Scope& scope, const std::vector<Tensor>& feeds,
          int64_t batches, int concurrency)
      : feeds_(feeds), batches_(batches) {
    for (int i = 0; i < concurrency; ++i) {
      programs_.push_back(program);
      scopes_.push_back(scope.Clone());
    }
  }

  std::vector<std::function<void()>> functions() {
    std::vector<std::function<void()>> functions;
    for (size_t i = 0; i < programs_.size(); ++i) {
      functions.emplace_back([this, i] {
        for (int64_t k = 0; k < batches_; ++k) programs_[i].Run(scopes_[i], feeds_);
      });
    }
    return functions;
  }

 private:
  const std::vector<Tensor>& feeds_;
  const int64_t batches_;
  std::deque<PreparedProgram> programs_;
  std::deque<Scope> scopes_;
};

void Describe(const BenchSubject& subject, const BenchFeeds& feeds, const PreparedProgram& program,
              BenchReport* report) {
  report->kind = subject.kind;
  report->weights = subject.weights;
  subject.program.ForEachOp([&](const OpDesc&) { ++report->ops; });
  program.program().ForEachOp([&](const OpDesc&) { ++report->ops_after_passes; });
  report->samples = feeds.samples * subject.batches;
  report->batches = subject.batches;
  for (size_t i = 0; i < feeds.names.size(); ++i) {
    const LoD& lod = feeds.values[i].lod();
    report->input_names.push_back(feeds.names[i]);
    report->input_types.push_back(feeds.values[i].ToString());
    report->input_sequences.push_back(lod.empty() ? 0 : static_cast<int64_t>(lod[0].size()) - 1);
  }
}

void NoteResults(const BenchSubject& subject, bool finite, const BenchRow& row,
                 BenchReport* report) {
  if (!finite) {
    report->notes.push_back(subject.weights.find("drawn") == std::string::npos
                                ? "results hold nan or inf"
                                : "results hold nan or inf, perhaps because of the drawn values");
  }
  const size_t runs = row.latencies.seconds.size();
  if (runs < static_cast<size_t>(kLeastRuns)) {
    report->notes.push_back(fmt::format(
        "{} with {} took {:.1f} s; percentiles of so few are unreliable", Counted(runs, "run"),
        Counted(static_cast<size_t>(row.threads), "thread"), row.latencies.elapsed));
  }
}

// Loads the subject again for each row, so that the times of loading, compiling and planning are
// also measured with this number of threads.
void MeasureRow(const std::string& path, const BenchFlags& flags, BenchReport* report) {
  BenchRow row;
  row.threads = NumThreads();
  BenchSubject subject = LoadSubject(path, flags.subject, flags.batch_size.value_or(0), &row.load);
  const bool begins = report->rows.empty();
  std::optional<PreparedProgram> program;
  row.compile = SecondsOf([&] { program.emplace(Prepare(flags.subject.compile, subject)); });
  const BenchFeeds feeds = DrawFeeds(subject, flags.subject, program->feed_names());
  const std::vector<Tensor>* results = nullptr;
  row.first_run = SecondsOf([&] { results = &program->Run(subject.scope, feeds.values); });
  const bool finite = AllFinite(*results);
  const double second = SecondsOf([&] { program->Run(subject.scope, feeds.values); });
  row.plan = std::max(0.0, row.first_run - second);
  row.workspace = program->WorkspaceBytes();
  if (begins) Describe(subject, feeds, *program, report);
  Clients clients(*program, subject.scope, feeds.values, subject.batches, flags.concurrency);
  program.reset();  // frees its workspace
  row.latencies = MeasureLatency(clients.functions(), LatencyOptionsOf(flags));
  row.peak = PeakMemory();
  NoteResults(subject, finite, row, report);
  report->rows.push_back(std::move(row));
}

int RunBench(const Args& args, const BenchFlags& flags) {
  RequireArgs(args, 1, 1, "one MODEL, PROGRAM, DIR or JOB.pbtxt");
  const std::vector<int> threads = ThreadsFromFlag();
  if (args[0] == "-" && threads.size() > 1)
    throw UsageError("standard input is read once: give one number of --threads");
  RequireOneProcess("bench", "`coracle train JOB --profile` measures a job on all of them");
  CompileOptionsOf(flags.subject.compile);  // reports invalid flags before it reads files
  TraceFile trace(flags.trace);
  const CommandLimits limits(flags.subject.compile.limits, CommandLimits::Time::kRuns);
  BenchReport report;
  report.program = args[0];
  report.concurrency = flags.concurrency;
  const int usual = NumThreads();
  for (const int number : threads) {
    SetNumThreads(number > 0 ? number : usual);
    MeasureRow(args[0], flags, &report);
  }
  trace.Write();
  flags.json ? PrintData(JsonOf(report)) : Print(TextOf(report));
  return 0;
}

}  // namespace

Command BenchCommand() {
  return MakeCommand(
      {"bench", "measures latency, throughput, start-up and memory of a program or of a job's step",
       "bench MODEL|PROGRAM|DIR|JOB.pbtxt [--batch_size=N] [--shape=VAR:1x3x224x224,...] "
       "[--threads=1,2] [--concurrency=N] [--seconds=S] [--params=PATH | --draw] [--json]",
       "  coracle bench inference.pdmodel --shape=x:1x3x640x640 --threads=1,2\n"
       "  coracle bench inference.pdmodel --batch_size=8 --concurrency=4 --threads=1 --json\n"
       "  coracle bench examples/digits/lenet.pbtxt --batch_size=64\n"},
      BenchFields(), RunBench);
}

}  // namespace coracle::tools
