#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/convert_tensors.h>
#include <coracle/tools/flags.h>

namespace coracle::tools {
namespace {

struct SplitFlags {
  std::string out = {};
  std::string params = {};
  LimitFlags limits = {};
};

Fields<SplitFlags> SplitFields() {
  return Fields<SplitFlags>("")
      .Add("out", &SplitFlags::out, "`DIR` for the files")
      .Add("params", &SplitFlags::params, kParamsDoc)
      .Inline(&SplitFlags::limits, LimitFields());
}

int RunSplitParams(const Args& args, const SplitFlags& flags) {
  RequireArgs(args, 1, 1, "one MODEL");
  if (flags.out.empty()) throw UsageError("--out=DIR is missing: where the files go");
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  SplitParameters(args[0], flags.params, flags.out);
  return 0;
}

}  // namespace

Command SplitParamsCommand() {
  Command command = MakeCommand(
      {"split-params", "writes each parameter of a model to a file of its own, in Paddle's format",
       "split-params MODEL -o DIR [--params=FILE]",
       "  coracle convert inference.pdmodel params/\n"},
      SplitFields(), RunSplitParams);
  command.replaced_by = "convert MODEL DIR/";
  return command;
}

}  // namespace coracle::tools
