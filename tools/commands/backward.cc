#include <coracle/backward/backward.h>
#include <coracle/backward/verify_program.h>
#include <coracle/clip/clip.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <fmt/format.h>

#include <set>

namespace coracle::tools {
namespace {

struct BackwardFlags {
  std::string loss = {};
  std::vector<std::string> inputs = {};
  std::vector<std::string> error_clip = {};
  std::string aggregation = "sum";
  std::string unconnected = "none";
  bool gate_gradients = false;
  std::vector<std::string> stop_gradients = {};
  std::vector<std::string> no_grad = {};
  std::string out = {};
  LimitFlags limits = {};
};

Fields<BackwardFlags> BackwardFields() {
  return Fields<BackwardFlags>("")
      .Add("loss", &BackwardFlags::loss,
           "`NAME` of the variable to differentiate; it holds one element")
      .Add("inputs", &BackwardFlags::inputs,
           "`NAMES` of the variables to compute gradients for; none: all trainable parameters")
      .Add("error_clip", &BackwardFlags::error_clip,
           "`CLIPS`, each VAR:MAX or VAR:MAX:MIN, separated by commas: keep the gradients of "
           "these variables in [MIN, MAX]; MIN is -MAX by default")
      .Add("aggregation", &BackwardFlags::aggregation,
           "`HOW` the contributions to one gradient are added: sum (one op adds all of them) "
           "or running (adds each one when it is ready; holds at most two)")
      .Add("unconnected", &BackwardFlags::unconnected,
           "`WHAT` to return as gradient of an input that the loss does not depend on: none or "
           "zero")
      .Add("gate_gradients", &BackwardFlags::gate_gradients,
           "no op reads a gradient of an op until all gradients of that op are computed")
      .Add("stop_gradients", &BackwardFlags::stop_gradients,
           "`NAMES` of variables that count as constants: they may get a gradient, but it does "
           "not flow further back")
      .Add("no_grad", &BackwardFlags::no_grad, "`NAMES` of variables that get no gradient")
      .Add("out", &BackwardFlags::out, "`FILE` of the program with gradient ops")
      .Inline(&BackwardFlags::limits, LimitFields());
}

// Parses VAR:MAX[:MIN] from the end, because a variable's name may contain colons.
void SetErrorClip(ProgramDesc& program, const std::string& text, std::set<std::string>* seen) {
  std::vector<std::string> parts = Split(text, ':');
  double last = 0, before = 0;
  if (parts.size() < 2 || !ParseDouble(parts.back(), &last))
    throw UsageError("--error_clip takes VAR:MAX or VAR:MAX:MIN, got " + Quote(text));
  const bool both = parts.size() > 2 && ParseDouble(parts[parts.size() - 2], &before);
  parts.resize(parts.size() - (both ? 2 : 1));
  const Variable var = Variable::Of(program.Root(), Join(parts, ":"));
  if (!seen->insert(var.name()).second)
    throw UsageError("--error_clip has two limits for " + Quote(var.name()));
  var.desc().SetErrorClip(both ? ErrorClipByValue(before, last) : ErrorClipByValue(last));
}

BackwardOptions OptionsFromFlags(const BackwardFlags& flags) {
  BackwardOptions options;
  options.parameter_list = flags.inputs;
  options.stop_gradients = flags.stop_gradients;
  options.no_grad_set = flags.no_grad;
  options.gate_gradients = flags.gate_gradients;
  try {
    options.aggregation = AggregationFromText(flags.aggregation);
    options.unconnected = UnconnectedFromText(flags.unconnected);
  } catch (const Error& error) {
    throw UsageError(error.message());
  }
  options.callbacks = {ErrorClipCallback};
  return options;
}

int RunBackward(const Args& args, const BackwardFlags& flags) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  if (flags.loss.empty()) throw UsageError("--loss=NAME is missing: the variable to differentiate");
  if (flags.out.empty()) throw UsageError("--out=FILE is missing: where the program goes");
  RequireProgramName("--out", flags.out);
  const BackwardOptions options = OptionsFromFlags(flags);
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  ProgramDesc program = ReadAnyProgram(args[0]);
  std::set<std::string> clipped;
  for (const std::string& clip : flags.error_clip) SetErrorClip(program, clip, &clipped);
  internal::CheckAndFillTypes(program, DefaultOps());
  GradToVar grad_to_var;
  const auto pairs =
      AppendBackward(Variable::Of(program.Root(), flags.loss), options, &grad_to_var);
  WarnOfIdleErrorClips(program, grad_to_var);
  WriteProgram(program, flags.out);
  if (flags.out == "-") return 0;
  std::string report;
  for (const ParamAndGrad& pair : pairs) {
    report += fmt::format(
        "{} -> {}\n", Shown(pair.param),
        pair.grad.empty() ? "no gradient: the loss does not depend on it" : Shown(pair.grad));
  }
  Print(report);
  return 0;
}

}  // namespace

Command BackwardCommand() {
  return MakeCommand(
      {"backward", "appends the ops that compute gradients",
       "backward PROGRAM --loss=NAME [--inputs=a,b] [--error_clip=VAR:MAX[:MIN],...] --out=FILE",
       "  coracle backward main.pb --loss=loss --out=train.pb\n"
       "  coracle backward main.pb --loss=loss --error_clip=hidden1:2e-6:-1e-6 --out=train.pb\n"
       "  coracle backward main.pb --loss=loss --inputs=x --unconnected=zero --out=train.pb\n"},
      BackwardFields(), RunBackward);
}

}  // namespace coracle::tools
