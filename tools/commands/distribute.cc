#include <coracle/distribute/all_reduce.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/timed_step.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

struct DistributeFlags {
  int32_t nranks = 0;
  double bucket_mb = 25;
  std::string share = {};
  bool sync_batch_norm = false;
  bool shard_state = false;
  std::string loss_weight = {};
  std::string out = {};
  std::string startup_out = {};
  LimitFlags limits = {};
};

Fields<DistributeFlags> DistributeFields() {
  return Fields<DistributeFlags>("")
      .Add("nranks", &DistributeFlags::nranks,
           "number `N` of ranks that will run the program, each on part of a batch")
      .Add("bucket_mb", &DistributeFlags::bucket_mb,
           "bucket size: gradients are exchanged in groups of up to `MB` megabytes")
      .Add("share", &DistributeFlags::share,
           "`NAME` of a variable of shape [1] to feed: the rank's rows divided by all rows "
           "(none: 1 / nranks)")
      .Add("sync_batch_norm", &DistributeFlags::sync_batch_norm,
           "batch_norm uses the statistics of the whole batch")
      .Add("shard_state", &DistributeFlags::shard_state,
           "each rank stores and updates a part of the optimizer's state")
      .Add("loss_weight", &DistributeFlags::loss_weight,
           "how a rank's loss counts if its ops do not show it: ROWS, SUM or the `NAME` of a "
           "variable (its elements count, or its value if it is a sum over rows)")
      .Add("out", &DistributeFlags::out, "`FILE` of the program")
      .Add("startup_out", &DistributeFlags::startup_out, "`FILE` of the startup program")
      .Inline(&DistributeFlags::limits, LimitFields());
}

struct Programs {
  ProgramDesc main, startup;
};

Programs Read(const std::vector<std::string>& args) {
  const std::string& file = args[0];
  if (args.size() == 1 && IsJob(file)) {
    TimedStep step = StepOfJob(ReadJob(file));
    return {std::move(step.main), std::move(step.startup)};
  }
  Programs programs{ReadAnyProgram(file), {}};
  if (args.size() > 1) programs.startup = ReadAnyProgram(args[1]);
  return programs;
}

std::string DescribeBuckets(const std::vector<GradientBucket>& buckets, const std::string& more) {
  std::string text;
  for (const GradientBucket& bucket : buckets) {
    const std::vector<std::string>& names = bucket.gradients;
    if (bucket.bytes < 0) {
      text += fmt::format("sparse: {}\n", Shown(names[0]));
      continue;
    }
    text += fmt::format("{}, {} bytes{}: {}{}\n", Counted(names.size(), "gradient"), bucket.bytes,
                        more, Shown(names[0]),
                        names.size() > 1 ? fmt::format(" to {}", Shown(names.back())) : "");
  }
  return text;
}

std::string DescribeStates(const AllReduceReport& report) {
  std::string text;
  for (const std::string& name : report.averaged)
    text += fmt::format("averaged in each step: {}, which forward ops change\n", Shown(name));
  for (const auto* names : {&report.local, &report.own}) {
    for (const std::string& name : *names)
      text += fmt::format("not exchanged: {}, which each rank computes from its own rows\n",
                          Shown(name));
  }
  return text;
}

std::string DistributeGradients(const DistributeFlags& flags, Programs& programs) {
  const AllReduceReport report = InsertAllReduce(programs.main, programs.startup,
                                                 {.nranks = flags.nranks,
                                                  .bucket_mb = flags.bucket_mb,
                                                  .share = flags.share,
                                                  .sync_batch_norm = flags.sync_batch_norm,
                                                  .shard_state = flags.shard_state,
                                                  .loss_weight = flags.loss_weight});
  std::string text = DescribeBuckets(report.buckets, "") +
                     DescribeBuckets(report.scattered, ", split over the ranks");
  int64_t elements = 0;
  for (const ShardedState& state : report.states) elements += state.shape.numel();
  if (elements > 0) {
    text += fmt::format("{} of {} elements, split over the ranks\n",
                        Counted(report.states.size(), "state"), elements);
  }
  return text + DescribeStates(report);
}

int RunDistribute(const Args& args, const DistributeFlags& flags) {
  RequireArgs(args, 1, 2, "one JOB.pbtxt, or a PROGRAM and perhaps its STARTUP program");
  if (flags.nranks < 1) throw UsageError("--nranks=N is missing: the number of ranks");
  if (flags.out.empty()) throw UsageError("--out=FILE is missing: where the program goes");
  RequireProgramName("--out", flags.out);
  RequireProgramName("--startup_out", flags.startup_out);
  if (flags.out == flags.startup_out)
    throw UsageError("--out and --startup_out must be two files, got " + Quote(flags.out, 300));
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  Programs programs = Read(args);
  const bool startup = programs.startup.Root().NumOps() > 0;
  if (!startup && !flags.startup_out.empty())
    throw UsageError("--startup_out needs a STARTUP program");
  const std::string text = DistributeGradients(flags, programs);
  WriteOutput([&] { WriteProgram(programs.main, flags.out); });
  if (!flags.startup_out.empty())
    WriteOutput([&] { WriteProgram(programs.startup, flags.startup_out); });
  if (flags.out != "-" && flags.startup_out != "-") Print(text);
  return 0;
}

}  // namespace

Command DistributeCommand() {
  return MakeCommand(
      {"distribute",
       "rewrites a training program for one of several ranks, which exchange gradients",
       "distribute JOB.pbtxt|PROGRAM [STARTUP] --nranks=N --out=FILE [--startup_out=FILE]",
       "  coracle distribute job.pbtxt --nranks=8 --out=step.pb --startup_out=startup.pb\n"
       "  coracle distribute main.pb startup.pb --nranks=2 --bucket_mb=4 --out=rank.pb "
       "--startup_out=rank_startup.pb\n"},
      DistributeFields(), RunDistribute);
}

}  // namespace coracle::tools
