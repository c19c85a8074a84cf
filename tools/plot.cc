#include <coracle/framework/base/file.h>
#include <coracle/train/log/plot.h>
#include <gflags/gflags.h>

#include "commands.h"
#include "flags.h"
#include "program_input.h"

DEFINE_bool(log_scale, false, "draw positive values on a logarithmic scale");

namespace coracle::tools {
namespace {

int RunPlot(const std::vector<std::string>& args) {
  if (args.empty()) throw UsageError("takes one RUN or more");
  const std::string out = FLAGS_out.empty() ? "curves.svg" : FLAGS_out;
  const bool html = out.ends_with(".html") || out.ends_with(".htm");
  RequireEnding("--out", out, {".svg", ".html", ".htm"});
  std::vector<PlotRun> runs;
  for (const std::string& arg : args) runs.push_back(ReadPlotRun(arg));
  WriteFileAtomic(out, html ? PlotHtml(runs, FLAGS_log_scale) : PlotSvg(runs, FLAGS_log_scale));
  if (out != "-") Print(Shown(out) + "\n");
  return 0;
}

}  // namespace

Command PlotCommand() {
  return {"plot",
          "draws the curves of runs as one SVG or HTML file",
          "plot RUN... [-o FILE.svg|FILE.html]",
          "  coracle plot output/digits_lenet -o curves.svg\n"
          "  coracle plot runs/1 runs/2 -o curves.html --log_scale\n",
          {"out", "log_scale"},
          RunPlot};
}

}  // namespace coracle::tools
