#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/layer.h>
#include <fmt/format.h>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "program_input.h"

DEFINE_string(phase, "TRAIN", "`TRAIN` or TEST: the phase for include_if and exclude_if");
DEFINE_string(stage, "",
              "`NAMES` of stages; build: the stages for include_if and exclude_if, as in a,b; "
              "graph: the stages of a training step to draw, as in forward,update");
DEFINE_string(startup_out, "", "`FILE` for the startup program, which creates the parameters");

namespace coracle::tools {
namespace {

std::string InputsOf(const BuiltModel& model) {
  if (model.inputs.empty()) return "no inputs";
  std::vector<std::string> shown;
  for (const std::string& name : model.inputs) shown.push_back(Shown(name));
  return "inputs " + Join(shown, ", ");
}

int RunBuild(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one MODEL.pbtxt");
  if (FLAGS_out.empty() && FLAGS_startup_out.empty())
    throw UsageError("--out=FILE is missing: where the program goes");
  RequireProgramName("--out", FLAGS_out);
  RequireProgramName("--startup_out", FLAGS_startup_out);
  if (FLAGS_out == FLAGS_startup_out)
    throw UsageError("--out and --startup_out must be two files, got " + Quote(FLAGS_out, 300));
  if (FLAGS_phase != "TRAIN" && FLAGS_phase != "TEST")
    throw UsageError("--phase is TRAIN or TEST, got " + Quote(FLAGS_phase));
  const CommandLimits limits(CommandLimits::Time::kCommand);
  const ModelState state{.train = FLAGS_phase == "TRAIN", .stages = ListFlag(FLAGS_stage)};
  const BuiltModel model = ReadModelText(args[0], DefaultOps(), state);
  std::string report;
  if (!FLAGS_out.empty()) {
    WriteOutput([&] { WriteProgram(model.main, FLAGS_out); });
    report +=
        fmt::format("{}: {}, {}, {}\n", Shown(FLAGS_out), Counted(model.main.Root().NumOps(), "op"),
                    Counted(model.main.Parameters().size(), "parameter"), InputsOf(model));
  }
  if (!FLAGS_startup_out.empty()) {
    WriteOutput([&] { WriteProgram(model.startup, FLAGS_startup_out); });
    report += fmt::format("{}: {}\n", Shown(FLAGS_startup_out),
                          Counted(model.startup.Root().NumOps(), "op"));
  }
  if (FLAGS_out != "-" && FLAGS_startup_out != "-") Print(report);
  return 0;
}

}  // namespace

Command BuildCommand() {
  return {"build",
          "builds programs from a model text",
          "build MODEL.pbtxt --out=main.pb [--startup_out=startup.pb]",
          "  coracle build lenet.pbtxt --out=main.pb --startup_out=startup.pb\n"
          "  coracle build lenet.pbtxt --out=- | coracle dump -\n",
          WithLimitFlags({"out", "startup_out", "phase", "stage"}),
          RunBuild};
}

}  // namespace coracle::tools
