#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/graphviz.h>
#include <coracle/tools/program_input.h>
#include <fmt/format.h>

#include <filesystem>

namespace coracle::tools {
namespace {

struct GraphFlags {
  std::string format = {};
  std::string out = {};
  int32_t block = -1;
  std::vector<std::string> stage = {};
  std::string around = {};
  std::optional<int32_t> depth = {};
  LimitFlags limits = {};
};

Fields<GraphFlags> GraphFields() {
  return Fields<GraphFlags>("")
      .Add("format", &GraphFlags::format,
           "`KIND` of the drawing: dot or svg; none: the kind that the ending of --out says, "
           "or dot")
      .Add("out", &GraphFlags::out, "`FILE` of the drawing; none: standard output")
      .Add("block", &GraphFlags::block, "only block `N`; -1: all", LimitedRange(-1, INT32_MAX))
      .Add("stage", &GraphFlags::stage,
           "`NAMES` of the stages of a training step to draw, as in forward,update")
      .Add("around", &GraphFlags::around, "draw only the ops near this `VAR`")
      .Add("depth", &GraphFlags::depth, "largest distance from --around, in ops (default: 2)",
           LimitedRange(1, INT32_MAX))
      .Inline(&GraphFlags::limits, LimitFields());
}

// Graphviz needs 15 seconds for a chain of this length; a chain of 3,000 ops overflows its stack.
constexpr size_t kMostDrawnOps = 2000;

// The value of --format, or the format that the ending of --out implies.
std::string FormatOf(const GraphFlags& flags) {
  if (!flags.format.empty() && flags.format != "dot" && flags.format != "svg")
    throw UsageError("--format of graph is dot or svg, got " + Quote(flags.format));
  if (flags.format == "svg") RequireEnding("--out", flags.out, {".svg"});
  if (flags.format == "dot") RequireEnding("--out", flags.out, {".dot", ".gv"});
  RequireEnding("--out", flags.out, {".dot", ".gv", ".svg"});
  if (!flags.format.empty()) return flags.format;
  return flags.out.ends_with(".svg") ? "svg" : "dot";
}

DotOptions OptionsOf(const GraphFlags& flags) {
  if (flags.depth && flags.around.empty())
    throw UsageError("--depth counts the steps from the variable that --around=VAR names");
  DotOptions options;
  options.block = flags.block;
  options.around = flags.around;
  if (flags.depth) options.depth = *flags.depth;
  for (const std::string& name : flags.stage) {
    try {
      options.stages.push_back(StageFromText(name));
    } catch (const Error& e) {
      throw UsageError("--stage: " + e.message());
    }
  }
  return options;
}

std::string Svg(const std::string& dot, size_t ops, double time_limit) {
  if (ops > kMostDrawnOps) {
    ThrowInvalid(
        fmt::format("{} are too many to draw as svg (at most {}); draw less with --stage, "
                    "--block or --around, or write --format=dot",
                    Counted(ops, "op"), kMostDrawnOps));
  }
  return SvgOfDot(dot, time_limit);
}

int RunGraph(const Args& args, const GraphFlags& flags) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  const std::string format = FormatOf(flags);
  const DotOptions options = OptionsOf(flags);
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  const size_t ops = OpsInDot(program, options);
  if (ops == 0) ThrowInvalid("there is no op to draw");
  const std::string dot = ProgramDot(program, DefaultOps(), options);
  const std::string text = format == "svg" ? Svg(dot, ops, flags.limits.time_limit) : dot;
  if (flags.out.empty() || flags.out == "-")
    PrintData(text);
  else
    WriteFileAtomic(flags.out, text);
  return 0;
}

}  // namespace

Command GraphCommand() {
  return MakeCommand(
      {"graph", "draws a program as a graph: DOT, or SVG through Graphviz",
       "graph PROGRAM [--format=dot|svg] [-o FILE] [--block=N] [--stage=NAMES] "
       "[--around=VAR [--depth=N]]",
       "  coracle graph inference.pdmodel -o model.svg\n"
       "  coracle graph train.pb --stage=forward | dot -Tpng > forward.png\n"
       "  coracle graph train.pb --around=fc_0.w_0@GRAD --depth=2 -o gradient.svg\n"},
      GraphFields(), RunGraph);
}

}  // namespace coracle::tools
