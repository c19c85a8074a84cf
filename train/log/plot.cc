#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/log/plot.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>

namespace coracle::inline internal {
namespace {

namespace fs = std::filesystem;

// Sizes in pixels. Each row has two panels.
constexpr double kPanelWidth = 520, kPanelHeight = 330, kHead = 46;
constexpr double kLeft = 68, kRight = 18, kTop = 34, kBottom = 44;
constexpr double kLegendRow = 16;    // one row of the legend, below the panel
constexpr size_t kMaxPoints = 2000;  // of one line; more cannot be distinguished
// Limits of the values that are drawn; kSmallest applies to logarithmic axes. Differences and
// quotients of values beyond them would overflow.
constexpr double kLargest = 1e300, kSmallest = 1e-300;

// Okabe and Ito's colours, which colour-blind people can distinguish.
constexpr std::array<const char*, 8> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#000000", "#999933"};

std::string Escaped(const std::string& text) {
  std::string safe;
  for (char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += std::iscntrl(static_cast<unsigned char>(c)) ? ' ' : c;
    }
  }
  return safe;
}

// Shortens a text to at most `bytes` bytes without cutting a UTF-8 character.
std::string Shortened(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  size_t end = bytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// One line of a panel.
struct Line {
  std::string label;  // "run test", or "test" when there is one run
  const char* color;
  bool train;
  bool dashed;  // one of further test sets, whose first one has the same colour
  std::vector<std::pair<int64_t, double>> points;
};

struct Panel {
  std::string title;
  std::vector<Line> lines;
};

// "train/loss" -> set "train", value "loss".
std::pair<std::string, std::string> SetAndValue(const std::string& series) {
  const size_t slash = series.find('/');
  if (slash == std::string::npos) return {"", series};
  if (series.starts_with("learning_rate/")) return {series.substr(slash + 1), "learning_rate"};
  return {series.substr(0, slash), series.substr(slash + 1)};
}

// Chooses colours: for each set of a single run, and for each run if there are several.
class LineColors {
 public:
  explicit LineColors(bool by_run) : by_run_(by_run) {}
  void NextRun() {
    if (by_run_) ++next_;
    sets_.clear();
  }
  // A line without points.
  Line For(const std::string& set, const std::string& label) {
    const bool train = set == "train" || set.empty();
    const auto [place, added] = sets_.try_emplace(set, train ? 0 : TestsIn(sets_));
    if (by_run_)
      return {label, kColors[(next_ - 1) % kColors.size()], train, place->second > 0, {}};
    const char*& chosen = colors_[set];
    if (!chosen) chosen = kColors[next_++ % kColors.size()];
    return {label, chosen, train, false, {}};
  }

 private:
  static size_t TestsIn(const std::map<std::string, size_t>& sets) {
    return sets.size() - sets.count("train") - sets.count("");
  }

  const bool by_run_;
  size_t next_ = 0;
  std::map<std::string, const char*> colors_;  // by set, of a single run
  std::map<std::string, size_t> sets_;         // of this run: the number among its test sets
};

std::vector<Panel> MakePanels(const std::vector<PlotRun>& runs) {
  std::vector<Panel> panels;
  LineColors colors(runs.size() > 1);
  for (const PlotRun& run : runs) {
    colors.NextRun();
    for (const LogSeries& series : run.series) {
      const bool finite = std::any_of(series.points.begin(), series.points.end(),
                                      [](const auto& p) { return std::isfinite(p.second); });
      if (!finite) continue;
      const auto [set, value] = SetAndValue(series.name);
      auto panel = std::find_if(panels.begin(), panels.end(),
                                [&v = value](const Panel& p) { return p.title == v; });
      if (panel == panels.end()) panel = panels.insert(panel, {value, {}});
      const std::string label = runs.size() == 1 ? (set.empty() ? value : set)
                                                 : run.name + (set.empty() ? "" : " " + set);
      panel->lines.push_back(colors.For(set, label));
      panel->lines.back().points = series.points;
    }
  }
  if (panels.empty()) ThrowInvalid("there is nothing to draw: the logs hold no values");
  return panels;
}

// The place of the line's name in the legend below its panel.
struct LegendEntry {
  double x;  // from the left end of the axis
  int row;
  std::string label;
};

std::vector<LegendEntry> PlaceLegend(const Panel& panel) {
  constexpr double kChar = 6.4, kRoom = kPanelWidth - kLeft - kRight;
  std::vector<LegendEntry> entries;
  if (panel.lines.size() == 1 && panel.lines[0].label == panel.title) return entries;
  double x = 0;
  int row = 0;
  for (const Line& line : panel.lines) {
    const std::string label = Shortened(line.label, 34);
    const double width = 40 + kChar * static_cast<double>(label.size());
    if (x > 0 && x + width > kRoom) {
      x = 0;
      ++row;
    }
    entries.push_back({x, row, label});
    x += width;
  }
  return entries;
}

double LegendHeight(const std::vector<Panel>& panels) {
  int rows = 0;
  for (const Panel& panel : panels)
    for (const LegendEntry& entry : PlaceLegend(panel)) rows = std::max(rows, entry.row + 1);
  return kLegendRow * rows;
}

// Maps values to pixels.
struct Axis {
  double low, high, begin, end;
  bool log = false;
  double operator()(double v) const {
    v = std::clamp(v, low, high);
    const double place =
        log ? (std::log10(v) - std::log10(low)) / (std::log10(high) - std::log10(low))
            : (v - low) / (high - low);
    return begin + place * (end - begin);
  }
};

std::string Number(double v) {
  if (v == 0) return "0";
  const double size = std::abs(v);
  if (size >= 1e6 || size < 1e-4) return fmt::format("{:.3g}", v);
  return fmt::format("{:.6g}", v);
}

// Powers of ten around [low, high], with 2 and 5 times these powers if there is room, and without
// some of them if there is none for their labels.
std::vector<double> LogTicks(double low, double high) {
  constexpr int kMostLabels = 12;
  std::vector<double> ticks;
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  const int stride = 1 + (last - first) / kMostLabels;
  for (int e = first; e < last + stride; e += stride) {
    for (double m : {1.0, 2.0, 5.0}) {
      const double tick = m * std::pow(10.0, e);
      if ((m == 1.0 || last - first <= 2) && std::isfinite(tick)) ticks.push_back(tick);
    }
  }
  while (ticks.size() > 2 && ticks[1] <= low) ticks.erase(ticks.begin());
  while (ticks.size() > 2 && ticks[ticks.size() - 2] >= high) ticks.pop_back();
  return ticks;
}

class Drawing {
 public:
  Drawing(const Panel& panel, double x, double y, bool log_scale) : panel_(panel), x_(x), y_(y) {
    double low = INFINITY, high = -INFINITY, first = INFINITY, last = -INFINITY;
    for (const Line& line : panel.lines) {
      for (const auto& [step, value] : line.points) {
        if (!std::isfinite(value)) continue;
        low = std::min(low, std::clamp(value, -kLargest, kLargest));
        high = std::max(high, std::clamp(value, -kLargest, kLargest));
        first = std::min(first, static_cast<double>(step));
        last = std::max(last, static_cast<double>(step));
      }
    }
    if (low == high) {  // a constant is in the middle
      const double room = std::abs(low) < kSmallest ? 1 : std::abs(low) / 2;
      low -= room;
      high += room;
    }
    if (first == last) last = first + std::max(1.0, first * 1e-9);
    const bool log = log_scale && low > 0;
    if (log) {
      low = std::max(low, kSmallest);
      high = std::max(high, 10 * kSmallest);
    }
    y_ticks_ = log ? LogTicks(low, high) : RoundTicks(low, high, 6);
    x_ticks_ = RoundTicks(first, last, 6);
    vertical_ = {y_ticks_.front(), y_ticks_.back(), y + kPanelHeight - kBottom, y + kTop, log};
    horizontal_ = {first, last, x + kLeft, x + kPanelWidth - kRight};
  }

  std::string Svg() {
    Text(x_ + kLeft, y_ + 20, "start", "title", panel_.title);
    for (double tick : y_ticks_) {
      const double at = vertical_(tick);
      Rule(horizontal_.begin, at, horizontal_.end, at);
      Text(horizontal_.begin - 8, at + 4, "end", "tick", Number(tick));
    }
    for (double tick : x_ticks_) {
      if (tick < horizontal_.low || tick > horizontal_.high) continue;
      const double at = horizontal_(tick);
      Rule(at, vertical_.begin, at, vertical_.end);
      Text(at, vertical_.begin + 17, "middle", "tick", Number(tick));
    }
    Text((horizontal_.begin + horizontal_.end) / 2, vertical_.begin + 35, "middle", "tick", "step");
    // Draws the lines of training first, so that the others cover them.
    for (bool train : {true, false})
      for (const Line& line : panel_.lines)
        if (line.train == train) Draw(line);
    Legend();
    return svg_;
  }

 private:
  void Text(double x, double y, const char* anchor, const char* style, const std::string& text) {
    svg_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n",
                    x, y, anchor, style, Escaped(text));
  }
  void Rule(double x1, double y1, double x2, double y2) {
    svg_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"rule\"/>\n", x1, y1,
        x2, y2);
  }

  static const char* Dashes(const Line& line) {
    return line.dashed ? " stroke-dasharray=\"5 3\"" : "";
  }

  void Draw(const Line& line) {
    const size_t stride = std::max<size_t>(1, line.points.size() / kMaxPoints);
    std::string path;
    bool pen_up = true;
    size_t drawn = 0;
    for (size_t i = 0; i < line.points.size(); ++i) {
      if (i % stride != 0 && i + 1 != line.points.size()) continue;
      const auto& [step, value] = line.points[i];
      if (!std::isfinite(value)) {
        pen_up = true;
        continue;
      }
      path += fmt::format("{}{:.1f},{:.1f}", pen_up ? "M" : "L",
                          horizontal_(static_cast<double>(step)), vertical_(value));
      pen_up = false;
      ++drawn;
    }
    svg_ += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-opacity=\"{}\" "
        "stroke-linejoin=\"round\"{}><title>{}</title></path>\n",
        path, line.color, line.train ? 1.3 : 2.2, line.train ? 0.75 : 1, Dashes(line),
        Escaped(line.label));
    if (drawn > 40) return;  // marks points only if there are few
    for (const auto& [step, value] : line.points) {
      if (!std::isfinite(value)) continue;
      svg_ += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{} step {}: {:.6g}"
          "</title></circle>\n",
          horizontal_(static_cast<double>(step)), vertical_(value), line.train ? 1.8 : 2.6,
          line.color, Escaped(line.label), step, value);
    }
  }

  void Legend() {
    const std::vector<LegendEntry> entries = PlaceLegend(panel_);
    for (size_t i = 0; i < entries.size(); ++i) {
      const Line& line = panel_.lines[i];
      const double x = horizontal_.begin + entries[i].x;
      const double y = y_ + kPanelHeight + kLegendRow * entries[i].row + 8;
      svg_ += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
          "stroke-width=\"{}\"{}/>\n",
          x, y - 4, x + 18, y - 4, line.color, line.train ? 1.3 : 2.6, Dashes(line));
      Text(x + 23, y, "start", "tick", entries[i].label);
    }
  }

  const Panel& panel_;
  double x_, y_;
  std::vector<double> x_ticks_, y_ticks_;
  Axis horizontal_, vertical_;
  std::string svg_;
};

std::string Names(const std::vector<PlotRun>& runs) {
  std::vector<std::string> names;
  names.reserve(runs.size());
  for (const PlotRun& run : runs) names.push_back(run.name);
  return Join(names, ", ");
}

}  // namespace

std::vector<double> RoundTicks(double low, double high, int count) {
  const double rough = (high - low) / std::max(count, 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double part = rough / power;
  const double step = power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
  if (!(step > 0) || !std::isfinite(step)) return {low, high};
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double k = first; k <= last && ticks.size() < 100; ++k)
    ticks.push_back(k == 0 ? 0 : k * step);
  // The steps may be smaller than the precision of the numbers, or beyond the largest number.
  const bool rise = ticks.size() > 1 && std::isfinite(ticks.front()) &&
                    std::isfinite(ticks.back()) && ticks.front() < ticks.back() &&
                    ticks.back() > low;
  return rise ? ticks : std::vector<double>{low, high};
}

PlotRun ReadPlotRun(const std::string& path) {
  std::string file = path;
  std::error_code error;
  if (IsDirectory(path)) {
    file = (fs::path(path) / "log.jsonl").string();
    if (!FileExists(file)) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{} is not the output directory of a run: it has no log.jsonl",
                              Quote(path, 300)));
    }
  }
  std::string name = fs::absolute(file, error).lexically_normal().parent_path().filename().string();
  return {name.empty() ? path : name, ReadRunLog(file)};
}

std::string PlotSvg(const std::vector<PlotRun>& runs, bool log_scale) {
  const std::vector<Panel> panels = MakePanels(runs);
  const size_t columns = std::min<size_t>(panels.size(), 2);
  const size_t rows = (panels.size() + columns - 1) / columns;
  const double width = kPanelWidth * static_cast<double>(columns);
  const double panel_height = kPanelHeight + LegendHeight(panels);
  const double height = kHead + panel_height * static_cast<double>(rows);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\">\n"
      "<style>.title{{font-size:14px;font-weight:bold;fill:#222}}"
      ".tick{{font-size:11px;fill:#444}}.rule{{stroke:#ddd;stroke-width:1}}"
      "</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"{2:.0f}\" y=\"28\" font-size=\"17px\" font-weight=\"bold\" fill=\"#222\">{3}"
      "</text>\n",
      width, height, kLeft, Escaped(Shortened(Names(runs), 100)));
  for (size_t i = 0; i < panels.size(); ++i) {
    const size_t row = i / columns, column = i % columns;
    const double x = kPanelWidth * static_cast<double>(column);
    const double y = kHead + panel_height * static_cast<double>(row);
    svg += Drawing(panels[i], x, y, log_scale).Svg();
  }
  return svg + "</svg>\n";
}

}  // namespace coracle::inline internal
