#include <coracle/communication/communicator.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/convert_caffe.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/process_ranks.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/trace_file.h>
#include <coracle/train/job/job_settings.h>
#include <coracle/train/run/run.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

namespace coracle::tools {
namespace {

struct TrainFlags {
  std::string out = {};
  std::string resume = {};
  std::vector<std::string> set = {};
  bool override = false;
  bool overwrite = false;
  std::optional<int64_t> snapshot_interval = {};
  std::optional<int64_t> max_iter = {};
  std::optional<int64_t> epochs = {};
  double max_seconds = 0;
  std::optional<int32_t> ranks = {};
  int64_t check_parameters = 100;
  CaffeFlags caffe = {};
  ExchangeFlags exchange = {};
  CompileFlags compile = {};
  TraceFlags trace = {};
};

Fields<TrainFlags> TrainFields() {
  return Fields<TrainFlags>("")
      .Add("out", &TrainFlags::out, "`DIR` for the results, instead of the job's")
      .Add("resume", &TrainFlags::resume,
           "continue from the newest snapshot of the job, or from the one in `DIR`")
      .Add("set", &TrainFlags::set,
           "set a field of the job: `FIELD=VALUE`, as in optimizer.adam.learning_rate=0.01; may be "
           "given several times",
           AppendedTexts())
      .Add("override", &TrainFlags::override,
           "with --resume: continue a snapshot that does not fit the job")
      .Add("overwrite", &TrainFlags::overwrite,
           "replace the files of another run in the job's directory")
      .Add("snapshot_interval", &TrainFlags::snapshot_interval,
           "steps between snapshots, instead of the job's", LimitedRange(0, INT64_MAX))
      .Add("max_iter", &TrainFlags::max_iter, "training steps in all, instead of the job's",
           LimitedRange(1, INT64_MAX))
      .Add("epochs", &TrainFlags::epochs, "epochs in all, instead of the job's",
           LimitedRange(1, INT64_MAX))
      .Add("max_seconds", &TrainFlags::max_seconds,
           "save and stop after `SECONDS`, instead of the job's", NotNegativeRange())
      .Add("ranks", &TrainFlags::ranks,
           "train with `N` ranks, which are threads of this process and share each batch",
           ClosedRange(1, 1000000))
      .Add("check_parameters", &TrainFlags::check_parameters,
           "with several ranks: steps between comparisons of their parameters; 0: none",
           LimitedRange(0, INT64_MAX))
      .Inline(&TrainFlags::caffe, CaffeFields())
      .Inline(&TrainFlags::exchange, ExchangeFields())
      .Inline(&TrainFlags::compile, CompileFields())
      .Inline(&TrainFlags::trace, TraceFields());
}

void ApplyFlags(const TrainFlags& flags, JobConfig& job) {
  if (!flags.caffe.data_dir.empty()) job.data_dir = flags.caffe.data_dir;
  if (!flags.out.empty()) job.output_dir = flags.out;
  if (job.output_dir.empty()) job.output_dir = DefaultOutputDirectory(job);
  if (flags.snapshot_interval) job.snapshot_interval = *flags.snapshot_interval;
  if (flags.max_seconds > 0) job.max_seconds = flags.max_seconds;
  if (flags.compile.seed > 0) job.random_seed = flags.compile.seed;
  // --max_iter or --epochs replaces the limit of the job, of either kind.
  if (!flags.max_iter && !flags.epochs) return;
  job.max_iter = flags.max_iter.value_or(0);
  job.epochs = flags.epochs.value_or(0);
}

// Trains as one of several processes.
int TrainAsProcess(const TrainFlags& flags, const JobConfig& job, TrainOptions options) {
  if (flags.ranks) throw UsageError("--ranks is for one process, and several were launched");
  options.communicator = CommunicatorOfProcess(flags.exchange);
  // Standard output looks like a terminal, but mpirun reads it.
  return TrainAndReport(job, options, std::cout, false);
}

int TerminalWidth() {
  winsize size = {};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

// Trains as one of several processes, on several threads as ranks, or alone.
int Train(const TrainFlags& flags, const JobConfig& job, const TrainOptions& options) {
  if (FindLaunched().size > 1) return TrainAsProcess(flags, job, options);
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  const int ranks = flags.ranks.value_or(1), width = TerminalWidth();
  if (ranks == 1) return TrainAndReport(job, options, std::cout, terminal, width);
  return TrainOnThreads(ranks, job, options, std::cout, terminal, width,
                        flags.exchange.exchange_timeout);
}

int RunTrain(const Args& args, const TrainFlags& flags) {
  RequireArgs(args, 1, 1, "one JOB.pbtxt or SOLVER.prototxt");
  RequireDirectoryName("--out", flags.out);
  TrainOptions options;
  options.compile = CompileOptionsOf(flags.compile);
  options.resume = !flags.resume.empty();
  options.check_parameters = flags.check_parameters;
  options.override_mismatch = flags.override;
  if (flags.override && !options.resume) throw UsageError("--override needs --resume");
  options.overwrite = flags.overwrite;
  if (flags.overwrite && options.resume)
    throw UsageError("--overwrite and --resume exclude each other");
  if (flags.resume != "newest") options.resume_from = flags.resume;
  TraceFile trace(flags.trace);
  const CommandLimits limits(flags.compile.limits, CommandLimits::Time::kRuns);
  const bool caffe = IsCaffeText(args[0]);
  if (caffe && !flags.set.empty())
    throw UsageError("--set changes fields of a job; a solver's are in its text");
  JobConfig job = caffe ? ReadSolverJob(args[0], flags.caffe) : ReadJobWith(args[0], flags.set);
  ApplyFlags(flags, job);
  const int code = Train(flags, job, options);
  std::cout.flush();
  trace.Write();
  return code;
}

}  // namespace

Command TrainCommand() {
  Command command = MakeCommand(
      {"train", "trains the model of a job",
       "train JOB.pbtxt [--data_dir=DIR] [--out=DIR] [--resume[=DIR] | --overwrite] [FLAGS]",
       "  coracle train examples/digits/lenet_job.pbtxt\n"
       "  coracle train examples/mnist/lenet.pbtxt --data_dir=mnist --out=runs/1\n"
       "  coracle train job.pbtxt --set=optimizer.adam.learning_rate=0.01 --set=epochs=3\n"
       "  coracle train job.pbtxt --resume\n"
       "  coracle train lenet_solver.prototxt --data_dir=mnist   # of Caffe\n"},
      TrainFields(), RunTrain);
  command.bare_values = {{"resume", "newest"}};
  return command;
}

}  // namespace coracle::tools
