#include <coracle/edit/edit.h>
#include <coracle/edit/store_halves.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/model_files.h>
#include <coracle/tools/pass_report.h>
#include <coracle/tools/precision_samples.h>
#include <coracle/tools/preprocess_files.h>
#include <coracle/tools/program_input.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

struct OptFlags {
  std::vector<std::string> passes = {};
  std::string purpose = {};
  std::string compat = {};
  bool explain = false;
  bool print_after_all = false;
  bool program = false;
  std::vector<std::string> fetch = {};
  DType weights = DType::kFloat32;
  PrecisionSamples precision = {};
  bool json = false;
  ModelFlags model = {};
  PassFlags compile = {};
  LimitFlags limits = {};
};

Fields<OptFlags> OptFields() {
  return Fields<OptFlags>("")
      .Add("passes", &OptFlags::passes, "`NAMES` of the only compiler passes to run; none: all")
      .Add("for", &OptFlags::purpose,
           "`PURPOSE` of the program: inference (parameters that no op writes become "
           "constants) or training; none: inference if parameters are found")
      .Add("compat", &OptFlags::compat,
           "`paddle`: runs only passes whose result Paddle understands")
      .Add("explain", &OptFlags::explain, "print the reason for each pass, and its changes")
      .Add("program", &OptFlags::program, "also print the program after the passes")
      .Add("print_after_all", &OptFlags::print_after_all, "print the program after each pass")
      .Add("fetch", &OptFlags::fetch,
           "`NAMES` of the variables to fetch; none: those of the fetch ops, or the outputs")
      .Add("weights", &OptFlags::weights,
           "`TYPE` in which the file holds weights: float32, float16 or bfloat16; readers widen "
           "them",
           OneOf{"WeightType",
                 {{"float32", DType::kFloat32},
                  {"float16", DType::kFloat16},
                  {"bfloat16", DType::kBFloat16}}})
      .Inline(&OptFlags::precision, PrecisionSampleFields())
      .Add("json", &OptFlags::json, "print JSON")
      .Inline(&OptFlags::model, ModelFields())
      .Inline(&OptFlags::compile, PassFields())
      .Inline(&OptFlags::limits, LimitFields());
}

OptimizeOptions OptionsFromFlags(const OptFlags& flags) {
  OptimizeOptions options;
  options.compile = CompileOptionsOf(flags.compile, flags.limits);
  options.passes = flags.passes;
  PassesWithout(options.passes);  // throws for an unknown name
  if (!flags.compat.empty() && flags.compat != "paddle")
    throw UsageError("--compat is paddle, got " + Quote(flags.compat));
  options.paddle_only = flags.compat == "paddle";
  for (const std::string& pass : options.passes) {
    if (options.paddle_only && !IsPaddlePass(pass))
      throw UsageError(fmt::format("--passes: Paddle does not know the result of {}", pass));
  }
  if (!flags.purpose.empty() && flags.purpose != "inference" && flags.purpose != "training")
    throw UsageError("--for is inference or training, got " + Quote(flags.purpose));
  return options;
}

void CheckFlags(const OptFlags& flags, const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  if (!flags.model.out.empty()) RequireProgramName("--out", flags.model.out);
  RequireParametersName("--save_params", flags.model.save_params);
  if (flags.model.out == "-" && flags.model.save_params == "-")
    throw UsageError("--out and --save_params cannot both be standard output");
  if (flags.model.out.empty() && !flags.model.save_params.empty())
    throw UsageError("--save_params needs --out=FILE");
  if (flags.json && (flags.explain || flags.print_after_all || flags.program))
    throw UsageError(
        "--explain, --program and --print_after_all are texts; --json has the table alone");
  if (flags.json && flags.model.out == "-")
    throw UsageError("--json and the program of --out=- mix");
  const bool narrows = flags.compile.precision == DType::kBFloat16;
  if (!narrows && !flags.precision.feed.empty())
    throw UsageError("--feed measures what bfloat16 loses: it needs --precision=bfloat16");
  if (flags.precision.feed.empty() && flags.precision.min_snr)
    throw UsageError("--min_snr needs samples: --feed=FILES");
  if (flags.json && !flags.precision.feed.empty())
    throw UsageError("--feed prints a table as text, which does not mix with --json");
  if (narrows && flags.compat == "paddle")
    throw UsageError(
        "--precision=bfloat16 makes ops that Paddle does not know; leave out --compat");
  if (flags.weights != DType::kFloat32 && flags.model.out.empty())
    throw UsageError("--weights needs --out=FILE");
}

// Whether to optimize for inference, with the values of the parameters.
bool IsForInference(const OptFlags& flags, const std::string& program, const std::string& params) {
  if (flags.purpose == "training") return false;
  if (!params.empty()) return true;
  if (flags.purpose.empty()) return false;
  if (flags.model.out.empty()) return true;  // zeros do for looking at the passes
  throw Error(ErrorCode::kNotFound,
              fmt::format("no parameters next to {}: for inference their values are folded into "
                          "the program; name them with --params=FILE, or use --for=training",
                          Quote(program, 300)));
}

void Save(const OptFlags& flags, const OptimizedProgram& optimized, const std::string& params) {
  if (flags.model.out.empty()) return;
  // Saves the parameters first, so that a reader that finds the program finds them too.
  if (!params.empty()) {
    WriteOutput(
        [&] { SaveParameters(optimized.parameters, PersistableNames(optimized.program), params); });
  }
  WriteProgram(optimized.program, flags.model.out);
}

// Stores weights in 16 bits, if --weights asks for it. Returns a line that describes the result.
std::string StoreWeights(const OptFlags& flags, OptimizedProgram* optimized) {
  if (flags.weights == DType::kFloat32) return "";
  const StoredHalves stored =
      StoreInHalves(optimized->program, optimized->parameters, flags.weights, DefaultOps());
  std::string text;
  for (const auto& [name, reason] : stored.kept)
    text += fmt::format("{} stays float32: {}\n", Shown(name), reason);
  return text + fmt::format("weights: {} in {}, {} -> {}\n", stored.stored, ToString(flags.weights),
                            HumanBytes(stored.bytes_before), HumanBytes(stored.bytes_after));
}

int RunOpt(const Args& args, const OptFlags& flags) {
  CheckFlags(flags, args);
  OptimizeOptions options = OptionsFromFlags(flags);
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  const std::string file = ProgramFile(args[0]);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  const std::string params =
      flags.model.params.empty() ? ParametersNextTo(file, program) : flags.model.params;
  options.freeze_parameters = IsForInference(flags, file, params);
  const std::string saved =
      params.empty() || flags.model.out.empty() ? "" : WrittenParameters(flags.model);
  if (options.freeze_parameters && !flags.model.out.empty() && saved.empty()) {
    throw UsageError(
        "folded parameters need a file: give --save_params=FILE, or --out=MODEL.pdmodel to write "
        "them next to it");
  }
  if (params.empty() && !flags.model.save_params.empty())
    throw UsageError("--save_params: no parameters were given; --params=FILE names them");
  RefuseOwnFiles({file, IsDirectory(params) ? params + "/__params__" : params},
                 {flags.model.out, saved});
  if (saved.empty() && !flags.model.out.empty()) RefuseForeignParameters(flags.model);
  Scope scope;
  if (!params.empty()) ReadParameters(program, params, scope);
  if (flags.model.out.empty()) FillMissingParameters(program, scope);
  std::vector<PassEffect> effects;
  const bool quiet = flags.model.out == "-" || flags.model.save_params == "-";
  const auto note = [&](const PassRun& run) {
    effects.push_back(EffectOf(run));
    if (flags.explain && !quiet) Print(ExplainPass(run) + "\n");
    if (flags.print_after_all && !quiet)
      Print(fmt::format("after {}\n{}\n", run.pass.name, ListProgram(run.after)));
  };
  std::string report = KeepLayersInFloat32(flags.precision, program, scope, &options.compile);
  OptimizedProgram optimized =
      OptimizeProgram(program, scope, FeedsToCompile(program),
                      FetchesToCompile(program, flags.fetch), options, note);
  report += StoreWeights(flags, &optimized);
  Save(flags, optimized, saved);
  CopyPreprocess(args[0], flags.model.out);
  if (quiet) return 0;
  if (!flags.json) Print(report);
  flags.json ? PrintData(EffectsJson(effects)) : Print(EffectsText(effects));
  if (flags.program) Print("\n" + ListProgram(optimized.program));
  if (!flags.json && !flags.model.out.empty())
    Print(fmt::format("{}{}\n", Shown(flags.model.out), saved.empty() ? "" : ", " + Shown(saved)));
  return 0;
}

}  // namespace

Command OptCommand() {
  return MakeCommand(
      {"opt", "runs the compiler's passes, explains their changes, and saves the result",
       "opt PROGRAM [--passes=a,b] [--for=inference|training] [--explain] [-o FILE] [FLAGS]",
       "  coracle opt inference.pdmodel -o optimised/inference.pdmodel\n"
       "  coracle opt inference.pdmodel --passes=fold_constants,fold_batch_norm --explain\n"
       "  coracle opt train.pb --for=training --print-after-all\n"
       "  coracle opt inference.pdmodel --compat=paddle -o smaller.pdmodel\n"
       "  coracle opt inference.pdmodel --precision=bfloat16 --feed=samples.npz -o faster.pdmodel\n"
       "  coracle opt inference.pdmodel --weights=float16 -o smaller.pdmodel\n"},
      OptFields(), RunOpt);
}

}  // namespace coracle::tools
