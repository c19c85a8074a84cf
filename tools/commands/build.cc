#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/layer.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

struct BuildFlags {
  std::string out = {};
  std::string startup_out = {};
  std::string phase = "TRAIN";
  std::vector<std::string> stage = {};
  LimitFlags limits = {};
};

Fields<BuildFlags> BuildFields() {
  return Fields<BuildFlags>("")
      .Add("out", &BuildFlags::out, "`FILE` of the main program")
      .Add("startup_out", &BuildFlags::startup_out,
           "`FILE` of the startup program, which creates the parameters")
      .Add("phase", &BuildFlags::phase, "`TRAIN` or TEST: the phase for include_if and exclude_if")
      .Add("stage", &BuildFlags::stage,
           "`NAMES` of the stages for include_if and exclude_if, as in a,b")
      .Inline(&BuildFlags::limits, LimitFields());
}

std::string InputsOf(const BuiltModel& model) {
  if (model.inputs.empty()) return "no inputs";
  std::vector<std::string> shown;
  for (const std::string& name : model.inputs) shown.push_back(Shown(name));
  return "inputs " + Join(shown, ", ");
}

int RunBuild(const Args& args, const BuildFlags& flags) {
  RequireArgs(args, 1, 1, "one MODEL.pbtxt");
  if (flags.out.empty() && flags.startup_out.empty())
    throw UsageError("--out=FILE is missing: where the program goes");
  RequireProgramName("--out", flags.out);
  RequireProgramName("--startup_out", flags.startup_out);
  if (flags.out == flags.startup_out)
    throw UsageError("--out and --startup_out must be two files, got " + Quote(flags.out, 300));
  if (flags.phase != "TRAIN" && flags.phase != "TEST")
    throw UsageError("--phase is TRAIN or TEST, got " + Quote(flags.phase));
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  const ModelState state{.train = flags.phase == "TRAIN", .stages = flags.stage};
  const BuiltModel model = ReadModelText(args[0], DefaultOps(), state);
  std::string report;
  if (!flags.out.empty()) {
    WriteOutput([&] { WriteProgram(model.main, flags.out); });
    report +=
        fmt::format("{}: {}, {}, {}\n", Shown(flags.out), Counted(model.main.Root().NumOps(), "op"),
                    Counted(model.main.Parameters().size(), "parameter"), InputsOf(model));
  }
  if (!flags.startup_out.empty()) {
    WriteOutput([&] { WriteProgram(model.startup, flags.startup_out); });
    report += fmt::format("{}: {}\n", Shown(flags.startup_out),
                          Counted(model.startup.Root().NumOps(), "op"));
  }
  if (flags.out != "-" && flags.startup_out != "-") Print(report);
  return 0;
}

}  // namespace

Command BuildCommand() {
  return MakeCommand({"build", "builds programs from a model text",
                      "build MODEL.pbtxt --out=main.pb [--startup_out=startup.pb]",
                      "  coracle build lenet.pbtxt --out=main.pb --startup_out=startup.pb\n"
                      "  coracle build lenet.pbtxt --out=- | coracle dump -\n"},
                     BuildFields(), RunBuild);
}

}  // namespace coracle::tools
