#include <coracle/backward/backward.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/process_ranks.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/run_input.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::tools {
namespace {

struct CheckGradFlags {
  std::string loss = {};
  std::vector<std::string> wrt = {};
  std::string feed = {};
  std::string params = {};
  std::optional<int32_t> batch_size = {};
  int32_t directions = 1;
  double tolerance = 1e-6;
  std::string allow_files = {};
  LimitFlags limits = {};
};

Fields<CheckGradFlags> CheckGradFields() {
  return Fields<CheckGradFlags>("")
      .Add("loss", &CheckGradFlags::loss,
           "`NAME` of the variable to differentiate; none: the gradients that the program "
           "computes")
      .Add("wrt", &CheckGradFlags::wrt,
           "`NAMES` of the variables to differentiate with respect to; none: all parameters")
      .Add("feed", &CheckGradFlags::feed, kFeedDoc)
      .Add("params", &CheckGradFlags::params, kParamsDoc)
      .Add("batch_size", &CheckGradFlags::batch_size,
           "`N` for the unknown dimensions of drawn feeds (default: 2)", LimitedRange(1, INT32_MAX))
      .Add("directions", &CheckGradFlags::directions, "`N` random directions for each variable",
           LimitedRange(1, INT32_MAX))
      .Add("tolerance", &CheckGradFlags::tolerance,
           "`X`: the largest relative difference that passes", PositiveRange())
      .Add("allow_files", &CheckGradFlags::allow_files,
           "`DIR` in which the program's own ops (save, load) may read and write files; none: "
           "programs that name files are refused")
      .Inline(&CheckGradFlags::limits, LimitFields());
}

// Takes variables of texts out of `wrt`, and says so of all inputs that are texts.
void SkipTexts(const ProgramDesc& program, std::vector<std::string>* wrt) {
  const auto is_text = [&](const std::string& name) {
    const VarDesc* var = program.Root().FindVar(name);
    return var && var->dtype() == DType::kString;
  };
  std::vector<std::string> texts = InputNames(program, DefaultOps());
  texts.insert(texts.end(), wrt->begin(), wrt->end());
  std::erase_if(texts, [&](const std::string& name) { return !is_text(name); });
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const bool named = !wrt->empty();
  std::erase_if(*wrt, is_text);
  if (named && wrt->empty()) {
    ThrowInvalid(
        fmt::format("--wrt: {} {} texts, which have no gradient; name a variable of "
                    "floats, or leave out --wrt for all parameters",
                    Join(texts, ", "), texts.size() == 1 ? "holds" : "hold"));
  }
  for (const std::string& name : texts)
    Print(fmt::format("{} is skipped: it holds texts, which have no gradient\n", Shown(name)));
}

int RunCheckGrad(const Args& args, const CheckGradFlags& flags) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  if (args[0] == "-" && flags.feed == "-")
    throw UsageError("PROGRAM and --feed cannot both be standard input");
  RequireOneProcess("check-grad", "`coracle run` runs a program on all of them");
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  Scope scope;
  CheckGradientOptions options;
  if (!flags.params.empty()) {
    ReadParameters(program, flags.params, scope);
    options.scope = &scope;
  }
  for (auto& [name, value] : ReadFeeds(flags.feed, program)) options.feeds[name] = std::move(value);
  options.allow_files = flags.allow_files;
  options.loss = flags.loss;
  options.wrt = flags.wrt;
  SkipTexts(program, &options.wrt);
  if (flags.batch_size) options.batch_size = *flags.batch_size;
  options.directions = flags.directions;
  options.tolerance = flags.tolerance;
  const CheckGradientReport report = CheckGradient(program, options);
  Print(report.ToString());
  const auto missing = std::count_if(report.checks.begin(), report.checks.end(),
                                     [](const GradientCheck& check) { return check.allowed == 0; });
  if (missing > 0) {
    throw Error(ErrorCode::kDeadlineExceeded,
                fmt::format("check-grad: passed its time limit of {:g} s: {} of {} checks are "
                            "missing; name fewer variables with --wrt, or give a larger "
                            "--time_limit",
                            flags.limits.time_limit, missing, report.checks.size()));
  }
  return report.passed() ? 0 : 1;
}

}  // namespace

Command CheckGradCommand() {
  return MakeCommand(
      {"check-grad", "compares a program's gradients with differences, in double",
       "check-grad PROGRAM [--loss=NAME] [--wrt=a,b] [--feed=in.npz] [--params=DIR|FILE]",
       "  coracle check-grad main.pb --loss=loss\n"
       "  coracle check-grad train.pb --wrt=conv2d_0.w_0 --feed=in.npz --params=params\n"},
      CheckGradFields(), RunCheckGrad);
}

}  // namespace coracle::tools
