#include <coracle/backward/check_gradient.h>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "program_input.h"

DEFINE_string(of, "", "`NAME` of the variable to differentiate");
DEFINE_string(wrt, "",
              "`NAME` of the variable to differentiate with respect to; check-grad takes several");

namespace coracle::tools {
namespace {

int RunExplain(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  if (FLAGS_of.empty()) throw UsageError("--of=NAME is missing: the variable to differentiate");
  if (FLAGS_wrt.empty()) throw UsageError("--wrt=NAME is missing: by which variable");
  const CommandLimits limits(CommandLimits::Time::kCommand);
  Print(ExplainGradient(ReadAnyProgram(args[0]), FLAGS_of, FLAGS_wrt).ToString());
  return 0;
}

}  // namespace

Command ExplainGradientCommand() {
  return {"explain-gradient",
          "explains why a variable has a gradient, or where the gradient ends",
          "explain-gradient PROGRAM --of=NAME --wrt=NAME",
          "  coracle explain-gradient main.pb --of=loss --wrt=fc_0.w_0\n",
          WithLimitFlags({"of", "wrt"}),
          RunExplain};
}

}  // namespace coracle::tools
