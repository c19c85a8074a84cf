#include <coracle/backward/check_gradient.h>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "process_ranks.h"
#include "program_input.h"
#include "run_input.h"

DECLARE_string(loss);
DECLARE_string(wrt);
DECLARE_string(feed);
DECLARE_string(params);
DEFINE_int32(batch_size, 0,
             "`N` for the unknown dimensions of drawn feeds; none: 1 for bench, 2 for check-grad, "
             "64 for time, and a job's own batch size for a job");
DEFINE_int32(directions, 1, "`N` random directions for each variable");
DEFINE_double(tolerance, 1e-6, "`X`: the largest relative difference that passes");

namespace coracle::tools {
namespace {

int RunCheckGrad(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  const bool batch_given = IsGiven("batch_size");
  if (batch_given && FLAGS_batch_size < 1) throw UsageError("--batch_size must be at least 1");
  if (FLAGS_directions < 1) throw UsageError("--directions must be at least 1");
  if (!(FLAGS_tolerance > 0)) throw UsageError("--tolerance must be positive");
  if (args[0] == "-" && FLAGS_feed == "-")
    throw UsageError("PROGRAM and --feed cannot both be standard input");
  RequireOneProcess("check-grad", "`coracle run` runs a program on all of them");
  const CommandLimits limits(CommandLimits::Time::kCommand);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  Scope scope;
  CheckGradientOptions options;
  if (!FLAGS_params.empty()) {
    ReadParameters(program, FLAGS_params, scope);
    options.scope = &scope;
  }
  for (auto& [name, value] : ReadFeeds(program)) options.feeds[name] = std::move(value);
  options.allow_files = FLAGS_allow_files;
  options.loss = FLAGS_loss;
  options.wrt = ListFlag(FLAGS_wrt);
  if (batch_given) options.batch_size = FLAGS_batch_size;
  options.directions = FLAGS_directions;
  options.tolerance = FLAGS_tolerance;
  const CheckGradientReport report = CheckGradient(program, options);
  Print(report.ToString());
  return report.passed() ? 0 : 1;
}

}  // namespace

Command CheckGradCommand() {
  return {"check-grad",
          "compares a program's gradients with differences, in double",
          "check-grad PROGRAM [--loss=NAME] [--wrt=a,b] [--feed=in.npz] [--params=DIR|FILE]",
          "  coracle check-grad main.pb --loss=loss\n"
          "  coracle check-grad train.pb --wrt=conv2d_0.w_0 --feed=in.npz --params=params\n",
          WithLimitFlags({"loss", "wrt", "feed", "params", "batch_size", "directions", "tolerance",
                          "allow_files"}),
          RunCheckGrad};
}

}  // namespace coracle::tools
