#include <coracle/framework/base/file.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <coracle/train/log/plot.h>

namespace coracle::tools {
namespace {

struct PlotFlags {
  std::string out = {};
  bool log_scale = false;
};

Fields<PlotFlags> PlotFields() {
  return Fields<PlotFlags>("")
      .Add("out", &PlotFlags::out, "`FILE` of the curves (default: curves.svg)")
      .Add("log_scale", &PlotFlags::log_scale, "draw positive values on a logarithmic scale");
}

int RunPlot(const Args& args, const PlotFlags& flags) {
  if (args.empty()) throw UsageError("takes one RUN or more");
  const std::string out = flags.out.empty() ? "curves.svg" : flags.out;
  RequireEnding("--out", out, {".svg"});
  std::vector<PlotRun> runs;
  for (const std::string& arg : args) runs.push_back(ReadPlotRun(arg));
  WriteFileAtomic(out, PlotSvg(runs, flags.log_scale));
  if (out != "-") Print(Shown(out) + "\n");
  return 0;
}

}  // namespace

Command PlotCommand() {
  return MakeCommand(
      {"plot", "draws the curves of runs as one SVG file", "plot RUN... [-o FILE.svg]",
       "  coracle plot output/digits_lenet -o curves.svg\n"
       "  coracle plot runs/1 runs/2 -o curves.svg --log_scale\n"},
      PlotFields(), RunPlot);
}

}  // namespace coracle::tools
