#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/dot.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <filesystem>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "graphviz.h"
#include "program_input.h"

DECLARE_string(format);
DECLARE_int32(block);
DECLARE_string(stage);
DEFINE_string(around, "", "draw only the ops near this `VAR`");
DEFINE_int32(depth, 2, "largest distance from --around, in ops");

namespace coracle::tools {
namespace {

// Graphviz needs 15 seconds for a chain of this length; a chain of 3,000 ops overflows its stack.
constexpr size_t kMostDrawnOps = 2000;

// The value of --format, or the format that the ending of --out implies.
std::string FormatFromFlags() {
  if (!FLAGS_format.empty() && FLAGS_format != "dot" && FLAGS_format != "svg")
    throw UsageError("--format of graph is dot or svg, got " + Quote(FLAGS_format));
  if (FLAGS_format == "svg") RequireEnding("--out", FLAGS_out, {".svg"});
  if (FLAGS_format == "dot") RequireEnding("--out", FLAGS_out, {".dot", ".gv"});
  RequireEnding("--out", FLAGS_out, {".dot", ".gv", ".svg"});
  if (!FLAGS_format.empty()) return FLAGS_format;
  return FLAGS_out.ends_with(".svg") ? "svg" : "dot";
}

DotOptions OptionsFromFlags() {
  if (FLAGS_block < -1)
    throw UsageError(fmt::format("--block takes the number of a block, got {}", FLAGS_block));
  if (FLAGS_depth < 1)
    throw UsageError(fmt::format("--depth must be at least 1, got {}", FLAGS_depth));
  if (IsGiven("depth") && FLAGS_around.empty())
    throw UsageError("--depth counts the steps from the variable that --around=VAR names");
  DotOptions options;
  options.block = FLAGS_block;
  options.around = FLAGS_around;
  options.depth = FLAGS_depth;
  for (const std::string& name : ListFlag(FLAGS_stage)) {
    try {
      options.stages.push_back(StageFromText(name));
    } catch (const Error& e) {
      throw UsageError("--stage: " + e.message());
    }
  }
  return options;
}

std::string Svg(const std::string& dot, size_t ops) {
  if (ops > kMostDrawnOps) {
    ThrowInvalid(
        fmt::format("{} are too many to draw as svg (at most {}); draw less with --stage, "
                    "--block or --around, or write --format=dot",
                    Counted(ops, "op"), kMostDrawnOps));
  }
  return SvgOfDot(dot, TimeLimitFromFlags());
}

int RunGraph(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  const std::string format = FormatFromFlags();
  const DotOptions options = OptionsFromFlags();
  const CommandLimits limits(CommandLimits::Time::kCommand);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  const size_t ops = OpsInDot(program, options);
  if (ops == 0) ThrowInvalid("there is no op to draw");
  const std::string dot = ProgramDot(program, DefaultOps(), options);
  const std::string text = format == "svg" ? Svg(dot, ops) : dot;
  if (FLAGS_out.empty() || FLAGS_out == "-")
    PrintData(text);
  else
    WriteFileAtomic(FLAGS_out, text);
  return 0;
}

}  // namespace

Command GraphCommand() {
  return {"graph",
          "draws a program as a graph: DOT, or SVG through Graphviz",
          "graph PROGRAM [--format=dot|svg] [-o FILE] [--block=N] [--stage=NAMES] "
          "[--around=VAR [--depth=N]]",
          "  coracle graph inference.pdmodel -o model.svg\n"
          "  coracle graph train.pb --stage=forward | dot -Tpng > forward.png\n"
          "  coracle graph train.pb --around=fc_0.w_0@GRAD --depth=2 -o gradient.svg\n",
          WithLimitFlags({"format", "out", "block", "stage", "around", "depth"}),
          RunGraph};
}

}  // namespace coracle::tools
