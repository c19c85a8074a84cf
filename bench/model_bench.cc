// Runs one of the workloads of README.md and prints a JSON line with the median time of a step, the
// peak memory, and the data for computing the limit.
//   model_bench --kind=train|infer|micro|first|limits --workload=NAME [--threads=1] [--batch=1]
//   [--program=PATH [--shape=1x3x640x640]] [--bfloat16] [--rows=1000000] [--ops=100000]
//   [--seconds=3] [--warm=1] [--steps=0] [--limit] [--check] [--describe] [--profile] [--tune]
//   [--hottest=3] [--passes=off[,NAME...]] [--kernels=reference]
// train: reads the loss back in every step. infer: a network by name, or a saved program. first:
// load, compile and plan, in ms; NAME is a network of infer, "program" or "chain". limits: the
// rates of matrix products and memory. --limit measures these rates here and adds limit_ms. --steps
// runs that many more steps and prints the memory of the process before and after them. --check
// compares the results with a run without passes, or checks that the loss falls.
// --describe counts parameters, multiply-adds and ops, and shows the effect of each pass. Without
// --workload, --describe and --check run all workloads. --hottest=N prints the N kernels that take
// the most time, with their share of the machine's rates. --save=PREFIX only saves the program of a
// first run.
#include <coracle/bench/measure.h>
#include <coracle/bench/workloads/limit.h>
#include <coracle/bench/workloads/workload.h>
#include <coracle/coracle.h>
#include <coracle/framework/base/text.h>
#include <coracle/passes/pass.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>

namespace coracle {
namespace {

constexpr double kMiB = 1048576;

Shape ShapeOf(const std::string& text) {
  std::vector<int64_t> dims;
  for (const std::string& dim : Split(text, 'x')) dims.push_back(std::stoll(dim));
  return Shape(dims);
}

WorkloadOptions OptionsOf(const Arguments& arguments) {
  WorkloadOptions options;
  options.kind = arguments.Text("kind", "train");
  options.name = arguments.Text("workload", "lenet");
  options.batch = arguments.Whole("batch", 1);
  options.rows = arguments.Whole("rows", 0);
  options.bfloat16 = arguments.Text("bfloat16", "") == "true";
  options.program = arguments.Text("program", "");
  options.shape = ShapeOf(arguments.Text("shape", ""));
  return options;
}

// Runs the workload's batches one after the other.
class Steps {
 public:
  Steps(Workload& workload, const CompileOptions& options)
      : workload_(workload), program_(workload.Prepare(options)) {}

  const std::vector<Tensor>& Run() {
    const auto& feeds = workload_.batches[count_++ % workload_.batches.size()];
    return program_.Run(workload_.scope, feeds);
  }
  // Reads back the loss, or the first element of a result.
  float RunAndRead() {
    const Tensor& result = Run()[0];
    if (result.numel() == 0) return 0;
    return result.dtype() == DType::kFloat32 ? result.data<float>()[0]
                                             : result.Cast(DType::kFloat32).data<float>()[0];
  }

  const PreparedProgram& program() const { return program_; }

 private:
  Workload& workload_;
  PreparedProgram program_;
  size_t count_ = 0;
};

std::string LimitText(const Cost& cost, const Rates& rates, double seconds) {
  const double limit = LimitSeconds(cost, rates);
  return fmt::format(
      ",\"gflops\":{:.4g},\"gbytes_s\":{:.4g},\"limit_ms\":{:.4g},\"of_limit\":{:.3f}",
      rates.gflops, rates.gbytes_s, limit * 1e3, seconds / limit);
}

std::string CostText(const Cost& cost) {
  return fmt::format(",\"params\":{},\"multiply_adds\":{:.0f},\"bytes\":{:.0f}", cost.parameters,
                     cost.multiply_adds, MemoryBytes(cost));
}

// Prints a table of the kernels that take the most time, with their share of the machine's rates.
void PrintHottest(const PreparedProgram& step, const Workload& workload, const Rates& rates,
                  size_t count) {
  struct Kernel {
    std::string name;
    int ops = 0;
    double seconds = 0, multiply_adds = 0, bytes = 0;
  };
  const auto costs = CostsOfOps(step.program(), workload);
  std::map<std::string, Kernel> kernels;
  double total = 0;
  for (const OpTime& time : step.Profile()) {
    const std::string how = time.kernel.substr(0, time.kernel.find(':'));
    Kernel& kernel = kernels[time.op_type + (how.empty() ? "" : ", " + how)];
    const double seconds = time.runs ? time.seconds / static_cast<double>(time.runs) : 0;
    ++kernel.ops;
    kernel.seconds += seconds;
    total += seconds;
    if (auto cost = costs.find({time.op_type, time.output}); cost != costs.end()) {
      kernel.multiply_adds += cost->second.multiply_adds;
      kernel.bytes += cost->second.bytes;
    }
  }
  std::vector<Kernel> sorted;
  for (auto& [name, kernel] : kernels) {
    kernel.name = name;
    sorted.push_back(kernel);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Kernel& a, const Kernel& b) { return a.seconds > b.seconds; });
  fmt::print(
      "| kernel | ops | ms | of the step | GFLOP/s | of the product's | GB/s | of the triad's |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (size_t i = 0; i < std::min(count, sorted.size()); ++i) {
    const Kernel& k = sorted[i];
    const double gflops = 2e-9 * k.multiply_adds / k.seconds, gbytes = 1e-9 * k.bytes / k.seconds;
    fmt::print("| {} | {} | {:.3f} | {:.0f}% | {:.1f} | {:.0f}% | {:.1f} | {:.0f}% |\n", k.name,
               k.ops, k.seconds * 1e3, 100 * k.seconds / total, gflops, 100 * gflops / rates.gflops,
               gbytes, 100 * gbytes / rates.gbytes_s);
  }
  fmt::print("\n{:.3f} ms in all; rates: {:.0f} GFLOP/s, {:.1f} GB/s\n", total * 1e3, rates.gflops,
             rates.gbytes_s);
}

int TimeWorkload(const Arguments& arguments, StepBench& bench, const WorkloadOptions& options) {
  const std::unique_ptr<Workload> workload = MakeWorkload(options);
  const Cost cost = CostOf(*workload);
  workload->Fill();
  Steps steps(*workload, bench.options());
  const float first = steps.RunAndRead();
  float last = first;
  const std::vector<double> times = bench.Time([&] { last = steps.RunAndRead(); });
  std::string extra = fmt::format(
      ",\"batch\":{},\"arena_mb\":{:.2f},\"loss_first\":{:.4f},\"loss_"
      "last\":{:.4f}",
      workload->batches[0][0].shape()[0],
      static_cast<double>(steps.program().WorkspaceBytes()) / kMiB, first, last);
  extra += CostText(cost);
  if (const int more = arguments.Whole("steps", 0)) {
    const double before = ProcessMiB("VmRSS");
    for (int i = 0; i < more; ++i) steps.RunAndRead();
    extra += fmt::format(",\"rss_before_steps_mb\":{:.2f},\"rss_after_steps_mb\":{:.2f}", before,
                         ProcessMiB("VmRSS"));
  }
  const double peak = ProcessMiB("VmHWM");
  if (arguments.Text("limit", "") == "true")
    extra += LimitText(cost, MeasureRates(0.5), times[times.size() / 2]);
  bench.Print(times, extra, peak);
  const int hottest = arguments.Whole("hottest", 0);
  if (hottest > 0)
    PrintHottest(steps.program(), *workload, MeasureRates(0.5), static_cast<size_t>(hottest));
  else
    bench.PrintProfile(steps.program());
  if (!std::isfinite(last)) ThrowInvalid("the result is not finite");
  return 0;
}

// --- first runs ---

struct FirstRun {
  double load = 0, compile = 0, first = 0, second = 0;  // seconds
  // System time of load, compile and first, in which the system clears fresh memory.
  double system = 0;
  double arena_mib = 0;

  double plan() const { return first - second; }
  double total() const { return load + compile + plan(); }
};

FirstRun MeasureFirstRun(const std::string& path, const WorkloadOptions& workload,
                         const CompileOptions& options) {
  FirstRun times;
  const auto timed = [&](double* seconds, auto&& f) {
    const double begin = Now(), system = SystemSeconds();
    f();
    *seconds = Now() - begin;
    if (seconds != &times.second) times.system += SystemSeconds() - system;
  };
  Scope scope;
  InferenceModel model;
  std::optional<PreparedProgram> program;
  timed(&times.load, [&] { model = LoadInferenceModel(path, scope); });
  const std::vector<Tensor> feeds = DrawFeeds(model, workload);
  timed(&times.compile,
        [&] { program.emplace(Executor(options).PrepareOwning(model.program, scope)); });
  timed(&times.first, [&] { program->Run(scope, feeds); });
  timed(&times.second, [&] { program->Run(scope, feeds); });
  times.arena_mib = static_cast<double>(program->WorkspaceBytes()) / kMiB;
  return times;
}

// A directory that the destructor removes.
class TemporaryDirectory {
 public:
  TemporaryDirectory()
      : path_(std::filesystem::temp_directory_path() / fmt::format("model_bench_{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

int Save(const Arguments& arguments, WorkloadOptions options) {
  options.kind = "infer";
  const std::unique_ptr<Workload> workload =
      options.name == "chain" ? MakeChain(arguments.Whole("ops", 100000)) : MakeWorkload(options);
  workload->Fill();
  SaveInferenceModel(arguments.Text("save", ""), workload->feeds, workload->fetches, workload->main,
                     workload->scope);
  return 0;
}

// Saves the program in a separate process, so that this process starts with unused memory
// and caches.
std::string SavedIn(const TemporaryDirectory& directory, const Arguments& arguments,
                    const WorkloadOptions& options) {
  const std::string path = directory.File("model");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = fmt::format("'{}' --save='{}' --workload='{}' --ops={}", self, path,
                                          options.name, arguments.Whole("ops", 100000));
  if (std::system(command.c_str()) != 0) ThrowInvalid("failed: " + command);
  return path;
}

int TimeFirstRun(const Arguments& arguments, const StepBench& bench,
                 const WorkloadOptions& options) {
  const TemporaryDirectory directory;
  const std::string path =
      options.program.empty() ? SavedIn(directory, arguments, options) : options.program;
  // A user waits for the first run; later runs find warm caches.
  const FirstRun cold = MeasureFirstRun(path, options, bench.options());
  const double peak = ProcessMiB("VmHWM"), begin = Now();
  std::vector<double> warm;
  for (int i = 0; i < 3 || Now() - begin < arguments.Real("seconds", 1); ++i)
    warm.push_back(MeasureFirstRun(path, options, bench.options()).total());
  bench.Print(
      {cold.total()},
      fmt::format(",\"load_ms\":{:.3f},\"compile_ms\":{:.3f},\"plan_ms\":{:.3f},\"system_ms\":"
                  "{:.3f},\"run_ms\":{:.3f},\"warm_ms\":{:.3f},\"arena_mb\":{:.2f}",
                  cold.load * 1e3, cold.compile * 1e3, cold.plan() * 1e3, cold.system * 1e3,
                  cold.second * 1e3, MedianOf(warm) * 1e3, cold.arena_mib),
      peak);
  return 0;
}

int PrintLimits(const StepBench& bench, double seconds) {
  const Rates rates = MeasureRates(seconds);
  bench.Print({0},
              fmt::format(",\"gflops\":{:.4g},\"gbytes_s\":{:.4g}", rates.gflops, rates.gbytes_s),
              ProcessMiB("VmHWM"));
  return 0;
}

// --- checks ---

void RequireFalls(Workload& workload, const CompileOptions& options) {
  Steps steps(workload, options);
  const size_t round = workload.batches.size();
  double first = 0, last = 0;
  for (size_t i = 0; i < 4 * round; ++i) {
    const double loss = steps.RunAndRead();
    if (!std::isfinite(loss)) ThrowInvalid(fmt::format("loss {} of step {}", loss, i));
    if (i < round) first += loss / static_cast<double>(round);
    if (i >= 3 * round) last += loss / static_cast<double>(round);
  }
  fmt::print("  mean loss of {} batches: {:.5f}, three rounds later {:.5f}\n", round, first, last);
  if (!(last < first)) ThrowInvalid("the loss does not fall");
}

// Compares with the program without passes.
void RequireSameAsPlain(const WorkloadOptions& options, Workload& workload,
                        const CompileOptions& compile) {
  CompileOptions no_passes = compile;
  no_passes.optimize = false;
  const std::unique_ptr<Workload> plain = MakeWorkload(options);
  plain->Fill();
  Steps steps(workload, compile), plain_steps(*plain, no_passes);
  const std::vector<Tensor>&got = steps.Run(), &wanted = plain_steps.Run();
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor result = got[i].Cast(DType::kFloat32), expected = wanted[i].Cast(DType::kFloat32);
    double largest = 0, difference = 0;
    for (int64_t k = 0; k < result.numel(); ++k) {
      const double w = expected.data<float>()[k], g = result.data<float>()[k];
      largest = std::fmax(largest, std::fabs(w));
      difference = std::fmax(difference, std::fabs(g - w));
      if (!std::isfinite(g)) ThrowInvalid("a result is not finite");
    }
    fmt::print("  result {}: largest {:.4g}, largest difference to the plain program {:.2g}\n", i,
               largest, difference);
    const double tolerance = options.bfloat16 ? 0.03 : 1e-4;
    if (!(difference <= tolerance * largest)) ThrowInvalid("the results differ");
  }
}

void Check(const WorkloadOptions& options, const CompileOptions& compile) {
  const std::unique_ptr<Workload> workload = MakeWorkload(options);
  workload->Fill();
  if (workload->has_loss) {
    RequireFalls(*workload, compile);
  } else {
    RequireSameAsPlain(options, *workload, compile);
  }
}

// The ops of the program after its first `count` passes, as sorted texts.
std::vector<std::string> OpsAfterPasses(const Workload& workload, CompileOptions compile,
                                        size_t count) {
  const std::vector<std::string> passes = PassesWithout({});
  compile.disabled_passes.insert(compile.disabled_passes.end(),
                                 passes.begin() + static_cast<ptrdiff_t>(count), passes.end());
  const Executor executor(compile);
  const PreparedProgram program =
      workload.frozen
          ? executor.PrepareFrozen(workload.main, workload.scope, workload.feeds, workload.fetches)
          : executor.Prepare(workload.main, workload.feeds, workload.fetches);
  std::vector<std::string> ops;
  program.program().ForEachOp([&](const OpDesc& op) { ops.push_back(PrintOp(op)); });
  std::sort(ops.begin(), ops.end());
  return ops;
}

// The number of elements of `a` that `b` lacks; both are sorted.
int64_t CountMissing(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> missing;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(missing));
  return static_cast<int64_t>(missing.size());
}

void DescribePasses(const Workload& workload, const CompileOptions& compile) {
  std::vector<std::string> before = OpsAfterPasses(workload, compile, 0);
  const std::vector<std::string> passes = PassesWithout({});
  for (size_t i = 0; i < passes.size(); ++i) {
    std::vector<std::string> after = OpsAfterPasses(workload, compile, i + 1);
    const int64_t removed = CountMissing(before, after), added = CountMissing(after, before);
    if (removed + added > 0)
      fmt::print("  pass {}: {} ops removed or changed, {} written\n", passes[i], removed, added);
    before = std::move(after);
  }
}

void Describe(const WorkloadOptions& options, const CompileOptions& compile) {
  const std::unique_ptr<Workload> workload = MakeWorkload(options);
  const Cost cost = CostOf(*workload);
  fmt::print("  {} parameters, {:.4g} million multiply-adds, {:.4g} MiB to move\n", cost.parameters,
             cost.multiply_adds * 1e-6, cost.bytes / kMiB);
  workload->Fill();
  if (compile.optimize) DescribePasses(*workload, compile);
  const size_t before = workload->main.Root().NumOps();
  const PreparedProgram program = workload->Prepare(compile);
  std::map<std::string, int> types;
  program.program().ForEachOp([&](const OpDesc& op) { ++types[op.type()]; });
  fmt::print("  {} ops, {} after the passes:", before, program.program().Root().NumOps());
  for (const auto& [type, count] : types) fmt::print(" {} {}", count, type);
  fmt::print("\n");
}

int CheckAndDescribe(const Arguments& arguments, const StepBench& bench, WorkloadOptions options) {
  const auto one = [&] {
    fmt::print("{} {}\n", options.kind, options.program.empty() ? options.name : options.program);
    if (arguments.Text("describe", "") == "true") Describe(options, bench.options());
    if (arguments.Text("check", "") == "true") Check(options, bench.options());
    std::fflush(stdout);
  };
  if (!arguments.Text("workload", "").empty() || !options.program.empty()) {
    one();
    return 0;
  }
  for (const char* kind : {"train", "infer", "micro"}) {
    if (!arguments.Text("kind", "").empty() && arguments.Text("kind", "") != kind) continue;
    options.kind = kind;
    for (const std::string& name : WorkloadNames(kind)) {
      options.name = name;
      one();
    }
  }
  return 0;
}

int Main(const Arguments& arguments) {
  StepBench bench(arguments, "lenet", 1, 3);
  const WorkloadOptions options = OptionsOf(arguments);
  bench.SetKind(options.kind);
  if (!arguments.Text("save", "").empty()) return Save(arguments, options);
  if (!arguments.Text("describe", "").empty() || !arguments.Text("check", "").empty())
    return CheckAndDescribe(arguments, bench, options);
  if (!options.program.empty() && arguments.Text("workload", "").empty())
    bench.SetWorkload(std::filesystem::path(options.program).filename().string());
  if (options.kind == "first") return TimeFirstRun(arguments, bench, options);
  if (options.kind == "limits") bench.SetWorkload("limits");
  if (options.kind == "limits") return PrintLimits(bench, arguments.Real("seconds", 1));
  return TimeWorkload(arguments, bench, options);
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
