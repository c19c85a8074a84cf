#include <coracle/edit/optimize.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_archive.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "model_files.h"
#include "pass_report.h"
#include "program_input.h"

DECLARE_string(params);
DECLARE_string(save_params);
DECLARE_bool(json);
DEFINE_string(passes, "", "`NAMES` of the only compiler passes to run; none: all");
DEFINE_string(for, "",
              "`PURPOSE` of the program: inference (parameters that no op writes become "
              "constants) or training; none: inference if parameters are found");
DEFINE_bool(print_after_all, false, "print the program after each pass");
DEFINE_bool(explain, false, "print the reason for each pass, and its changes");

namespace coracle::tools {
namespace {

OptimizeOptions OptionsFromFlags() {
  OptimizeOptions options;
  options.compile = CompileOptionsFromFlags();
  options.passes = ListFlag(FLAGS_passes);
  PassesWithout(options.passes);  // throws for an unknown name
  if (!FLAGS_compat.empty() && FLAGS_compat != "paddle")
    throw UsageError("--compat is paddle, got " + Quote(FLAGS_compat));
  options.paddle_only = FLAGS_compat == "paddle";
  for (const std::string& pass : options.passes) {
    if (options.paddle_only && !IsPaddlePass(pass))
      throw UsageError(fmt::format("--passes: Paddle does not know the result of {}", pass));
  }
  if (!FLAGS_for.empty() && FLAGS_for != "inference" && FLAGS_for != "training")
    throw UsageError("--for is inference or training, got " + Quote(FLAGS_for));
  return options;
}

void CheckFlags(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  if (!FLAGS_out.empty()) RequireProgramName("--out", FLAGS_out);
  RequireParametersName("--save_params", FLAGS_save_params);
  if (FLAGS_out == "-" && FLAGS_save_params == "-")
    throw UsageError("--out and --save_params cannot both be standard output");
  if (FLAGS_out.empty() && !FLAGS_save_params.empty())
    throw UsageError("--save_params needs --out=FILE");
  if (FLAGS_json && (FLAGS_explain || FLAGS_print_after_all))
    throw UsageError("--explain and --print_after_all are texts; --json has the table alone");
  if (FLAGS_json && FLAGS_out == "-") throw UsageError("--json and the program of --out=- mix");
}

// Whether to optimize for inference, with the values of the parameters.
bool IsForInference(const std::string& program, const std::string& params) {
  if (FLAGS_for == "training") return false;
  if (!params.empty()) return true;
  if (FLAGS_for.empty()) return false;
  throw Error(ErrorCode::kNotFound,
              fmt::format("no parameters next to {}: for inference their values are folded into "
                          "the program; name them with --params=FILE, or use --for=training",
                          Quote(program, 300)));
}

void Save(const OptimizedProgram& optimized, const std::string& params) {
  if (FLAGS_out.empty()) return;
  // Saves the parameters first, so that a reader that finds the program finds them too.
  if (!params.empty()) {
    WriteOutput(
        [&] { SaveParameters(optimized.parameters, PersistableNames(optimized.program), params); });
  }
  WriteProgram(optimized.program, FLAGS_out);
}

int RunOpt(const std::vector<std::string>& args) {
  CheckFlags(args);
  OptimizeOptions options = OptionsFromFlags();
  const CommandLimits limits(CommandLimits::Time::kCommand);
  const std::string file = ProgramFile(args[0]);
  const std::string params = FLAGS_params.empty() ? ParametersBeside(file) : FLAGS_params;
  options.freeze_parameters = IsForInference(file, params);
  const std::string saved = params.empty() || FLAGS_out.empty() ? "" : WrittenParameters();
  if (options.freeze_parameters && !FLAGS_out.empty() && saved.empty()) {
    throw UsageError(
        "folded parameters need a file: give --save_params=FILE, or --out=MODEL.pdmodel to write "
        "them next to it");
  }
  if (params.empty() && !FLAGS_save_params.empty())
    throw UsageError("--save_params: no parameters were given; --params=FILE names them");
  RefuseOwnFiles({file, IsDirectory(params) ? params + "/__params__" : params}, {FLAGS_out, saved});
  if (saved.empty() && !FLAGS_out.empty()) RefuseForeignParameters();
  const ProgramDesc program = ReadAnyProgram(args[0]);
  Scope scope;
  if (!params.empty()) ReadParameters(program, params, scope);
  std::vector<PassEffect> effects;
  const bool quiet = FLAGS_out == "-" || FLAGS_save_params == "-";
  const auto note = [&](const PassRun& run) {
    effects.push_back(EffectOf(run));
    if (FLAGS_explain && !quiet) Print(ExplainPass(run) + "\n");
    if (FLAGS_print_after_all && !quiet)
      Print(fmt::format("after {}\n{}\n", run.pass.name, ListProgram(run.after)));
  };
  const OptimizedProgram optimized = OptimizeProgram(program, scope, FeedsToCompile(program),
                                                     FetchesToCompile(program), options, note);
  Save(optimized, saved);
  if (quiet) return 0;
  FLAGS_json ? PrintData(EffectsJson(effects)) : Print(EffectsText(effects));
  if (!FLAGS_json && !FLAGS_out.empty())
    Print(fmt::format("{}{}\n", Shown(FLAGS_out), saved.empty() ? "" : ", " + Shown(saved)));
  return 0;
}

}  // namespace

Command OptCommand() {
  return {"opt",
          "runs the compiler's passes, explains their changes, and saves the result",
          "opt PROGRAM [--passes=a,b] [--for=inference|training] [--explain] [-o FILE] [FLAGS]",
          "  coracle opt inference.pdmodel -o optimised/inference.pdmodel\n"
          "  coracle opt inference.pdmodel --passes=fold_constants,fold_batch_norm --explain\n"
          "  coracle opt train.pb --for=training --print-after-all\n"
          "  coracle opt inference.pdmodel --compat=paddle -o smaller.pdmodel\n",
          WithLimitFlags({"passes", "disabled_passes", "for", "compat", "explain",
                          "print_after_all", "fetch", "params", "save_params", "out", "json",
                          "kernels", "check_nan_inf", "allow_files"}),
          RunOpt};
}

}  // namespace coracle::tools
