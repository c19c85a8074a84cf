#pragma once
// Curves of training runs as one picture.

#include <coracle/train/log/run_log.h>

#include <string>
#include <vector>

namespace coracle {

struct PlotRun {
  std::string name;
  std::vector<LogSeries> series;
};

// The log of a run: its output directory, or a log.jsonl. The name is the directory's.
PlotRun ReadPlotRun(const std::string& path);

// SVG with a panel for each value ("loss", "accuracy", "learning_rate"): over the steps a line for
// each run and set, those of training thin, with a legend. No external resources. A point that is
// not finite makes a gap; `log_scale` where all of a panel's values are positive. Throws
// kInvalidArgument when there is nothing to draw.
std::string PlotSvg(const std::vector<PlotRun>& runs, bool log_scale = false);
// The same in an HTML page with a table of the last values.
std::string PlotHtml(const std::vector<PlotRun>& runs, bool log_scale = false);

// Round numbers (1, 2 or 5 times a power of ten) that cover [low, high], about `count` of them.
std::vector<double> RoundTicks(double low, double high, int count);

}  // namespace coracle
