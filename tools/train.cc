#include <coracle/communication/launched.h>
#include <coracle/train/run/run.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "command_limits.h"
#include "commands.h"
#include "convert_caffe.h"
#include "flags.h"
#include "process_ranks.h"
#include "program_input.h"
#include "trace_file.h"

DEFINE_string(resume, "", "continue from the newest snapshot of the job, or from the one in `DIR`");
DEFINE_bool(override, false, "with --resume: continue a snapshot that does not fit the job");
DEFINE_bool(overwrite, false, "replace the files of another run in the job's directory");
DEFINE_string(data_dir, "", "`DIR` that contains the data files with relative names");
DEFINE_int64(snapshot_interval, -1, "steps between snapshots, instead of the job's");
DEFINE_double(max_seconds, 0, "save and stop after `SECONDS`, instead of the job's");
DEFINE_int64(max_iter, -1, "training steps in all, instead of the job's");
DEFINE_int64(epochs, -1, "epochs in all, instead of the job's");

DEFINE_int64(check_parameters, 100,
             "with several ranks: steps between comparisons of their parameters; 0: none");

namespace coracle::tools {
namespace {

void RequireAtLeast(const char* flag, int64_t value, int64_t least) {
  const bool given = !gflags::GetCommandLineFlagInfoOrDie(flag).is_default;
  if (given && value < least)
    throw UsageError(fmt::format("--{} must be at least {}, got {}", flag, least, value));
}

void ApplyFlags(JobConfig& job) {
  if (!FLAGS_data_dir.empty()) job.data_dir = FLAGS_data_dir;
  if (!FLAGS_out.empty()) job.output_dir = FLAGS_out;
  if (job.output_dir.empty()) job.output_dir = DefaultOutputDirectory(job);
  if (FLAGS_snapshot_interval >= 0) job.snapshot_interval = FLAGS_snapshot_interval;
  if (FLAGS_max_seconds > 0) job.max_seconds = FLAGS_max_seconds;
  if (FLAGS_seed > 0) job.random_seed = FLAGS_seed;
  // --max_iter or --epochs replaces the limit of the job, of either kind.
  if (FLAGS_max_iter < 0 && FLAGS_epochs < 0) return;
  job.max_iter = std::max<int64_t>(FLAGS_max_iter, 0);
  job.epochs = std::max<int64_t>(FLAGS_epochs, 0);
}

// Trains as one of several processes.
int TrainAsProcess(const JobConfig& job, TrainOptions options) {
  if (!FLAGS_ranks.empty())
    throw UsageError("--ranks is for one process, and several were launched");
  options.communicator = CommunicatorOfProcess();
  // Standard output looks like a terminal, but mpirun reads it.
  return TrainAndReport(job, options, std::cout, false);
}

int TerminalWidth() {
  winsize size = {};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

int RunTrain(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one JOB.pbtxt or SOLVER.prototxt");
  RequireDirectoryName("--out", FLAGS_out);
  const std::vector<int> ranks = RanksFromFlag();
  if (ranks.size() > 1) throw UsageError("--ranks of train takes one number");
  RequireAtLeast("max_iter", FLAGS_max_iter, 1);
  RequireAtLeast("epochs", FLAGS_epochs, 1);
  RequireAtLeast("check_parameters", FLAGS_check_parameters, 0);
  RequireAtLeast("snapshot_interval", FLAGS_snapshot_interval, 0);
  if (FLAGS_max_seconds < 0 || !std::isfinite(FLAGS_max_seconds))
    throw UsageError(fmt::format("--max_seconds must be positive, got {:g}", FLAGS_max_seconds));
  const double exchange_timeout = ExchangeTimeout();
  TrainOptions options;
  options.compile = CompileOptionsFromFlags();
  options.resume = !FLAGS_resume.empty();
  options.check_parameters = FLAGS_check_parameters;
  options.override_mismatch = FLAGS_override;
  if (FLAGS_override && !options.resume) throw UsageError("--override needs --resume");
  options.overwrite = FLAGS_overwrite;
  if (FLAGS_overwrite && options.resume)
    throw UsageError("--overwrite and --resume exclude each other");
  if (FLAGS_resume != "newest") options.resume_from = FLAGS_resume;
  TraceFile trace;
  const CommandLimits limits(CommandLimits::Time::kRuns);
  JobConfig job = IsCaffeText(args[0]) ? ReadSolverJob(args[0]) : ReadJob(args[0]);
  ApplyFlags(job);
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  const int width = TerminalWidth();
  const int code =
      FindLaunched().size > 1 ? TrainAsProcess(job, options)
      : !ranks.empty() && ranks[0] > 1
          ? TrainOnThreads(ranks[0], job, options, std::cout, terminal, width, exchange_timeout)
          : TrainAndReport(job, options, std::cout, terminal, width);
  std::cout.flush();
  trace.Write();
  return code;
}

}  // namespace

Command TrainCommand() {
  return {"train",
          "trains the model of a job",
          "train JOB.pbtxt [--data_dir=DIR] [--out=DIR] [--resume[=DIR] | --overwrite] [FLAGS]",
          "  coracle train examples/digits/lenet_job.pbtxt\n"
          "  coracle train examples/mnist/lenet.pbtxt --data_dir=mnist --out=runs/1\n"
          "  coracle train job.pbtxt --resume\n"
          "  coracle train lenet_solver.prototxt --data_dir=mnist   # of Caffe\n",
          WithTraceFlags(
              WithCompileFlags({"data", "data_dir", "shape", "stage", "out", "resume", "override",
                                "overwrite", "snapshot_interval", "max_iter", "epochs",
                                "max_seconds", "ranks", "exchange_timeout", "check_parameters"})),
          RunTrain,
          {{"resume", "newest"}}};
}

}  // namespace coracle::tools
