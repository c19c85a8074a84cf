#pragma once
// Draws the curves of training runs.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// One series of a log.jsonl ("train/loss", "test/accuracy", "learning_rate") with its points (step,
// value), in order.
struct LogSeries {
  std::string name;
  std::vector<std::pair<int64_t, double>> points;
};
// Throws kInvalidArgument with the line number for a line that is not a record. Ignores an
// incomplete last line.
std::vector<LogSeries> ReadRunLog(const std::string& path);

struct PlotRun {
  std::string name;
  std::vector<LogSeries> series;
};

// Reads the log of a run: its output directory, or a log.jsonl. The run's name is the name of
// the directory.
PlotRun ReadPlotRun(const std::string& path);

// Returns an SVG with a panel for each value ("loss", "accuracy", "learning_rate"). A panel shows a
// line over the steps for each run and set, with thin lines for training, and a legend. The SVG
// uses no external resources. A point that is not finite leaves a gap; `log_scale` applies to
// panels with only positive values. Throws kInvalidArgument if there is nothing to draw.
std::string PlotSvg(const std::vector<PlotRun>& runs, bool log_scale = false);

// Round numbers (1, 2 or 5 times a power of ten) that cover [low, high], about `count` of them.
std::vector<double> RoundTicks(double low, double high, int count);

}  // namespace coracle::inline internal
