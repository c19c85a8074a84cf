#include <coracle/backward/backward.h>
#include <coracle/backward/verify_program.h>
#include <coracle/clip/clip.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>

#include <set>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "program_input.h"

DEFINE_string(loss, "", "`NAME` of the variable to differentiate; it holds one element");
DEFINE_string(inputs, "",
              "`NAMES` of the variables to compute gradients for (none: all trainable parameters); "
              "extract: the inputs of the part (none: the program's own inputs)");
DEFINE_string(error_clip, "",
              "`CLIPS`, each VAR:MAX or VAR:MAX:MIN, separated by commas: keep the gradients of "
              "these variables in [MIN, MAX]; MIN is -MAX by default");
DEFINE_string(aggregation, "sum",
              "`HOW` the contributions to one gradient are added: sum (one op adds all of them) or "
              "running (adds each one when it is ready; holds at most two)");
DEFINE_string(unconnected, "none",
              "`WHAT` to return as gradient of an input that the loss does not depend on: none or "
              "zero");
DEFINE_bool(gate_gradients, false,
            "no op reads a gradient of an op until all gradients of that op are computed");
DEFINE_string(stop_gradients, "",
              "`NAMES` of variables that count as constants: they may get a gradient, but it does "
              "not flow further back");
DEFINE_string(no_grad, "", "`NAMES` of variables that get no gradient");

namespace coracle::tools {
namespace {

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

BackwardOptions OptionsFromFlags() {
  BackwardOptions options;
  options.parameter_list = ListFlag(FLAGS_inputs);
  options.stop_gradients = ListFlag(FLAGS_stop_gradients);
  options.no_grad_set = ListFlag(FLAGS_no_grad);
  options.gate_gradients = FLAGS_gate_gradients;
  try {
    options.aggregation = AggregationFromText(FLAGS_aggregation);
    options.unconnected = UnconnectedFromText(FLAGS_unconnected);
  } catch (const Error& error) {
    throw UsageError(error.message());
  }
  options.callbacks = {ErrorClipCallback};
  return options;
}

int RunBackward(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  if (FLAGS_loss.empty()) throw UsageError("--loss=NAME is missing: the variable to differentiate");
  if (FLAGS_out.empty()) throw UsageError("--out=FILE is missing: where the program goes");
  RequireProgramName("--out", FLAGS_out);
  const BackwardOptions options = OptionsFromFlags();
  const CommandLimits limits(CommandLimits::Time::kCommand);
  ProgramDesc program = ReadAnyProgram(args[0]);
  std::set<std::string> clipped;
  for (const std::string& clip : ListFlag(FLAGS_error_clip)) SetErrorClip(program, clip, &clipped);
  internal::SettleProgram(program, DefaultOps());
  GradToVar grad_to_var;
  const auto pairs =
      AppendBackward(Variable::Of(program.Root(), FLAGS_loss), options, &grad_to_var);
  WarnOfIdleErrorClips(program, grad_to_var);
  WriteProgram(program, FLAGS_out);
  if (FLAGS_out == "-") return 0;
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
  return {"backward",
          "appends the ops that compute gradients",
          "backward PROGRAM --loss=NAME [--inputs=a,b] [--error_clip=VAR:MAX[:MIN],...] --out=FILE",
          "  coracle backward main.pb --loss=loss --out=train.pb\n"
          "  coracle backward main.pb --loss=loss --error_clip=hidden1:2e-6:-1e-6 --out=train.pb\n"
          "  coracle backward main.pb --loss=loss --inputs=x --unconnected=zero --out=train.pb\n",
          WithLimitFlags({"loss", "inputs", "error_clip", "aggregation", "unconnected",
                          "gate_gradients", "stop_gradients", "no_grad", "out"}),
          RunBackward};
}

}  // namespace coracle::tools
