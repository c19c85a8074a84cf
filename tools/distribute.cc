#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/local_sgd.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/timed_step.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "program_input.h"

DECLARE_string(startup_out);
DEFINE_int32(nranks, 0, "number `N` of ranks that will run the program, each on part of a batch");
DEFINE_string(share, "",
              "`NAME` of a variable of shape [1] to feed: the rank's rows divided by all rows "
              "(none: 1 / nranks)");
DEFINE_bool(sync_batch_norm, false, "batch_norm uses the statistics of the whole batch");
DEFINE_int64(local_sgd_steps, 0,
             "local SGD: each rank makes `K` updates alone, then the ranks average their "
             "parameters (0: they exchange gradients for every update)");
DEFINE_bool(shard_state, false, "each rank stores and updates a part of the optimizer's state");

namespace coracle::tools {
namespace {

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

std::string DescribeBuckets(const std::vector<GradientBucket>& buckets, const std::string& what,
                            const std::string& more) {
  std::string text;
  for (const GradientBucket& bucket : buckets) {
    const std::vector<std::string>& names = bucket.gradients;
    if (bucket.bytes < 0) {
      text += fmt::format("sparse: {}\n", Shown(names[0]));
      continue;
    }
    text += fmt::format("{}, {} bytes{}: {}{}\n", Counted(names.size(), what), bucket.bytes, more,
                        Shown(names[0]),
                        names.size() > 1 ? fmt::format(" to {}", Shown(names.back())) : "");
  }
  return text;
}

template <class Report>
std::string DescribeStates(const Report& report, const char* when) {
  std::string text;
  for (const std::string& name : report.averaged)
    text += fmt::format("averaged {}: {}, which forward ops change\n", when, Shown(name));
  for (const auto* names : {&report.local, &report.own}) {
    for (const std::string& name : *names)
      text += fmt::format("not exchanged: {}, which each rank computes from its own rows\n",
                          Shown(name));
  }
  return text;
}

std::string DistributeGradients(Programs& programs) {
  const AllReduceReport report = InsertAllReduce(programs.main, programs.startup,
                                                 {.nranks = FLAGS_nranks,
                                                  .bucket_mb = FLAGS_bucket_mb,
                                                  .share = FLAGS_share,
                                                  .sync_batch_norm = FLAGS_sync_batch_norm,
                                                  .shard_state = FLAGS_shard_state});
  std::string text = DescribeBuckets(report.buckets, "gradient", "") +
                     DescribeBuckets(report.scattered, "gradient", ", split over the ranks");
  int64_t elements = 0;
  for (const ShardedState& state : report.states) elements += state.shape.numel();
  if (elements > 0) {
    text += fmt::format("{} of {} elements, split over the ranks\n",
                        Counted(report.states.size(), "state"), elements);
  }
  for (const std::string& line : report.unknown) text += "warning: " + line + "\n";
  return text + DescribeStates(report, "in each step");
}

std::string DistributeParameters(Programs& programs) {
  if (FLAGS_sync_batch_norm || FLAGS_shard_state)
    throw UsageError("--local_sgd_steps does not go with --sync_batch_norm or --shard_state");
  const LocalSgdReport report = InsertLocalSgd(programs.main, programs.startup,
                                               {.nranks = FLAGS_nranks,
                                                .steps = FLAGS_local_sgd_steps,
                                                .bucket_mb = FLAGS_bucket_mb,
                                                .share = FLAGS_share});
  return DescribeBuckets(report.buckets, "averaged variable", "") +
         DescribeStates(report, "with the parameters");
}

int RunDistribute(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 2, "one JOB.pbtxt, or a PROGRAM and perhaps its STARTUP program");
  if (FLAGS_nranks < 1) throw UsageError("--nranks=N is missing: the number of ranks");
  if (FLAGS_out.empty()) throw UsageError("--out=FILE is missing: where the program goes");
  RequireProgramName("--out", FLAGS_out);
  RequireProgramName("--startup_out", FLAGS_startup_out);
  if (FLAGS_out == FLAGS_startup_out)
    throw UsageError("--out and --startup_out must be two files, got " + Quote(FLAGS_out, 300));
  const CommandLimits limits(CommandLimits::Time::kCommand);
  Programs programs = Read(args);
  const bool startup = programs.startup.Root().NumOps() > 0;
  if (!startup && !FLAGS_startup_out.empty())
    throw UsageError("--startup_out needs a STARTUP program");
  const std::string text =
      FLAGS_local_sgd_steps != 0 ? DistributeParameters(programs) : DistributeGradients(programs);
  WriteOutput([&] { WriteProgram(programs.main, FLAGS_out); });
  if (!FLAGS_startup_out.empty())
    WriteOutput([&] { WriteProgram(programs.startup, FLAGS_startup_out); });
  if (FLAGS_out != "-" && FLAGS_startup_out != "-") Print(text);
  return 0;
}

}  // namespace

Command DistributeCommand() {
  return {"distribute",
          "rewrites a training program for one of several ranks, which exchange gradients",
          "distribute JOB.pbtxt|PROGRAM [STARTUP] --nranks=N --out=FILE [--startup_out=FILE]",
          "  coracle distribute job.pbtxt --nranks=8 --out=step.pb --startup_out=startup.pb\n"
          "  coracle distribute main.pb startup.pb --nranks=2 --bucket_mb=4 --out=rank.pb "
          "--startup_out=rank_startup.pb\n",
          WithLimitFlags({"nranks", "bucket_mb", "share", "sync_batch_norm", "shard_state",
                          "local_sgd_steps", "out", "startup_out"}),
          RunDistribute};
}

}  // namespace coracle::tools
