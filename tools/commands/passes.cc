#include <coracle/executor/compiled_program.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/pass_report.h>
#include <coracle/tools/program_input.h>

namespace coracle::tools {
namespace {

struct PassesFlags {
  std::string params = {};
  std::vector<std::string> fetch = {};
  bool frozen = true;
  bool program = false;
  bool json = false;
  CompileFlags compile = {};
};

Fields<PassesFlags> PassesFields() {
  return Fields<PassesFlags>("")
      .Add("params", &PassesFlags::params, kParamsDoc)
      .Add("fetch", &PassesFlags::fetch,
           "`NAMES` of the variables to fetch; none: those of the fetch ops, or the outputs")
      .Add("frozen", &PassesFlags::frozen,
           "treat parameters that no op writes as constants, as run does")
      .Add("program", &PassesFlags::program, "also print the program after the passes")
      .Add("json", &PassesFlags::json, "print JSON")
      .Inline(&PassesFlags::compile, CompileFields());
}

int RunPassesCommand(const Args& args, const PassesFlags& flags) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  if (flags.program && flags.json)
    throw UsageError("--program prints text, which does not mix with --json");
  const CompileOptions options = CompileOptionsOf(flags.compile);
  const CommandLimits limits(flags.compile.limits, CommandLimits::Time::kCommand);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  Scope scope;
  const std::string params =
      flags.params.empty() ? ParametersNextTo(ProgramFile(args[0]), program) : flags.params;
  if (!params.empty()) ReadParameters(program, params, scope);
  FillMissingParameters(program, scope);
  std::vector<PassEffect> effects;
  const auto note = [&](const PassRun& run) { effects.push_back(EffectOf(run)); };
  const CompiledProgram compiled(program, FeedsToCompile(program),
                                 FetchesToCompile(program, flags.fetch), options, DefaultOps(),
                                 {flags.frozen ? &scope : nullptr, nullptr}, note);
  flags.json ? PrintData(EffectsJson(effects)) : Print(EffectsText(effects));
  if (flags.program) Print("\n" + ListProgram(compiled.program()));
  return 0;
}

}  // namespace

Command PassesCommand() {
  Command command = MakeCommand(
      {"passes", "compiles a program and shows what each pass of the compiler changed",
       "passes PROGRAM [--params=DIR|FILE] [--fetch=a,b] [--nofrozen] [--program] [--json]",
       "  coracle passes inference.pdmodel\n"
       "  coracle passes train.pb --fetch=loss --nofrozen --program\n"
       "  coracle passes inference.pdmodel --json\n"},
      PassesFields(), RunPassesCommand);
  command.replaced_by = "opt PROGRAM --for=inference";
  return command;
}

}  // namespace coracle::tools
