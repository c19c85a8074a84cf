#include <coracle/edit/edit.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/model_files.h>

namespace coracle::tools {
namespace {

struct ExtractFlags {
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};
  ModelFlags model = {};
  LimitFlags limits = {};
};

Fields<ExtractFlags> ExtractFields() {
  return Fields<ExtractFlags>("")
      .Add("inputs", &ExtractFlags::inputs,
           "`NAMES` of the inputs of the part; none: the program's own inputs")
      .Add("outputs", &ExtractFlags::outputs, "`NAMES` of the variables that the part computes")
      .Inline(&ExtractFlags::model, ModelFields())
      .Inline(&ExtractFlags::limits, LimitFields());
}

int RunExtract(const Args& args, const ExtractFlags& flags) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  const ExtractOptions options = {flags.inputs, flags.outputs};
  if (options.outputs.empty())
    throw UsageError("--outputs=NAMES is missing: the variables that the part yields");
  CheckModelFlags(flags.model);
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  ModelFiles model = ReadModel(args[0], flags.model.params);
  ExtractedProgram part = ExtractProgram(model.program, options, DefaultOps());
  model.program = std::move(part.program);
  std::string report = WriteModel(model, flags.model);
  if (report.empty()) return 0;
  report += DescribeVars("inputs", model.program, part.inputs);
  report += DescribeVars("outputs", model.program, part.outputs);
  if (!part.unused_inputs.empty())
    report += DescribeVars("unused", model.program, part.unused_inputs);
  Print(report);
  return 0;
}

}  // namespace

Command ExtractCommand() {
  return MakeCommand(
      {"extract", "cuts out the part of a program that computes some variables from others",
       "extract PROGRAM [--inputs=a,b] --outputs=c,d -o OUT [--params=DIR|FILE] "
       "[--save_params=FILE]",
       "  coracle extract inference.pdmodel --outputs=conv2d_0.tmp_0 -o head.pdmodel\n"
       "  coracle extract inference.pdmodel --inputs=conv2d_0.tmp_0 --outputs=out -o "
       "tail.pdmodel\n"
       "  coracle extract train.pb --outputs=loss,fc_0.w_0@GRAD -o part.pbtxt\n"},
      ExtractFields(), RunExtract);
}

}  // namespace coracle::tools
