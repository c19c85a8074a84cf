#include <coracle/backward/backward.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>

namespace coracle::tools {
namespace {

struct ExplainFlags {
  std::string of = {};
  std::string wrt = {};
  LimitFlags limits = {};
};

Fields<ExplainFlags> ExplainFields() {
  return Fields<ExplainFlags>("")
      .Add("of", &ExplainFlags::of, "`NAME` of the variable to differentiate")
      .Add("wrt", &ExplainFlags::wrt, "`NAME` of the variable to differentiate with respect to")
      .Inline(&ExplainFlags::limits, LimitFields());
}

int RunExplain(const Args& args, const ExplainFlags& flags) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  if (flags.of.empty()) throw UsageError("--of=NAME is missing: the variable to differentiate");
  if (flags.wrt.empty()) throw UsageError("--wrt=NAME is missing: by which variable");
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  Print(ExplainGradient(ReadAnyProgram(args[0]), flags.of, flags.wrt).ToString());
  return 0;
}

}  // namespace

Command ExplainGradientCommand() {
  return MakeCommand(
      {"explain-gradient", "explains why a variable has a gradient, or where the gradient ends",
       "explain-gradient PROGRAM --of=NAME --wrt=NAME",
       "  coracle explain-gradient main.pb --of=loss --wrt=fc_0.w_0\n"},
      ExplainFields(), RunExplain);
}

}  // namespace coracle::tools
