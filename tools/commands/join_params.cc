#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/convert_tensors.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>

namespace coracle::tools {
namespace {

struct JoinFlags {
  std::string out = {};
  std::string params = {};
  LimitFlags limits = {};
};

Fields<JoinFlags> JoinFields() {
  return Fields<JoinFlags>("")
      .Add("out", &JoinFlags::out, "`FILE` of the joined parameters")
      .Add("params", &JoinFlags::params, "`DIR` of the parameters of the model")
      .Inline(&JoinFlags::limits, LimitFields());
}

int RunJoinParams(const Args& args, const JoinFlags& flags) {
  RequireArgs(args, 1, 1, "one DIR or MODEL");
  if (flags.out.empty()) throw UsageError("--out=FILE is missing: where the parameters go");
  RequireParametersName("--out", flags.out);
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  JoinParameterFiles(args[0], flags.params, flags.out);
  return 0;
}

}  // namespace

Command JoinParamsCommand() {
  Command command = MakeCommand(
      {"join-params",
       "joins parameters in files of their own to one combined file, in the order of names",
       "join-params DIR|MODEL -o FILE.pdiparams [--params=DIR]",
       "  coracle convert params inference.pdiparams\n"},
      JoinFields(), RunJoinParams);
  command.replaced_by = "convert DIR FILE.pdiparams";
  return command;
}

}  // namespace coracle::tools
