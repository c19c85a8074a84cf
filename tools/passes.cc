#include <coracle/executor/compiled_program.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/operators/operators.h>
#include <gflags/gflags.h>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "pass_report.h"
#include "program_input.h"

DECLARE_string(params);
DECLARE_bool(json);
DEFINE_bool(frozen, true, "treat parameters that no op writes as constants, as run does");
DEFINE_bool(program, false, "also print the program after the passes");

namespace coracle::tools {
namespace {

// Sets missing parameters to zeros: their values hardly affect the passes.
void FillMissing(const ProgramDesc& program, Scope& scope) {
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    if (var.persistable() && var.type() == VarType::kLoDTensor && var.shape().IsKnown() &&
        IsValid(var.dtype()) && !scope.Find(var.name()))
      scope.Set(var.name(), Tensor::Zeros(var.dtype(), var.shape()));
  }
}

int RunPassesCommand(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  const CompileOptions options = CompileOptionsFromFlags();
  const CommandLimits limits(CommandLimits::Time::kCommand);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  Scope scope;
  const std::string params =
      FLAGS_params.empty() ? ParametersBeside(ProgramFile(args[0])) : FLAGS_params;
  if (!params.empty()) ReadParameters(program, params, scope);
  FillMissing(program, scope);
  std::vector<PassEffect> effects;
  const auto note = [&](const PassRun& run) { effects.push_back(EffectOf(run)); };
  const CompiledProgram compiled(program, FeedsToCompile(program), FetchesToCompile(program),
                                 options, DefaultOps(), {FLAGS_frozen ? &scope : nullptr, nullptr},
                                 note);
  FLAGS_json ? PrintData(EffectsJson(effects)) : Print(EffectsText(effects));
  if (FLAGS_program && !FLAGS_json) Print("\n" + ListProgram(compiled.program()));
  return 0;
}

}  // namespace

Command PassesCommand() {
  return {"passes",
          "compiles a program and shows what each pass of the compiler changed",
          "passes PROGRAM [--params=DIR|FILE] [--fetch=a,b] [--nofrozen] [--program] [--json]",
          "  coracle passes inference.pdmodel\n"
          "  coracle passes train.pb --fetch=loss --nofrozen --program\n"
          "  coracle passes inference.pdmodel --json\n",
          WithCompileFlags({"params", "fetch", "frozen", "program", "json"}),
          RunPassesCommand};
}

}  // namespace coracle::tools
