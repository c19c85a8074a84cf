#pragma once
// Draws the curves of training runs.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// The values of a log.jsonl: for each series ("train/loss", "test/accuracy", "learning_rate") its
// points (step, value), in order.
struct LogSeries {
  std::string name;
  std::vector<std::pair<int64_t, double>> points;
};
// Throws kInvalidArgument with the line number for a line that is not a record; an incomplete last
// line is ignored.
std::vector<LogSeries> ReadRunLog(const std::string& path);

struct PlotRun {
  std::string name;
  std::vector<LogSeries> series;
};

// The log of a run: its output directory, or a log.jsonl. The name is the directory's.
PlotRun ReadPlotRun(const std::string& path);

// An SVG with a panel for each value ("loss", "accuracy", "learning_rate"). A panel shows a line
// for each run and set over the steps, with thin lines for training, and a legend. No external
// resources. A point that is not finite makes a gap; `log_scale` applies to panels whose values are
// all positive. Throws kInvalidArgument if there is nothing to draw.
std::string PlotSvg(const std::vector<PlotRun>& runs, bool log_scale = false);
// The same in an HTML page with a table of the last values.
std::string PlotHtml(const std::vector<PlotRun>& runs, bool log_scale = false);

// Round numbers (1, 2 or 5 times a power of ten) that cover [low, high], about `count` of them.
std::vector<double> RoundTicks(double low, double high, int count);

}  // namespace coracle
