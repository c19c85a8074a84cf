#include <coracle/framework/base/text.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/plot.h>
#include <coracle/train/log/quality_svg.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coracle::inline internal {
namespace {

// Sizes in the units of a drawing, which the page scales.
constexpr double kWidth = 460, kHeight = 340, kLeft = 62, kRight = 16, kTop = 14, kBottom = 48;
constexpr int64_t kMostCells = 30;

std::string Short(const std::string& text, size_t most) {
  const std::string line = PrintableLine(text);
  size_t at = 0;
  for (size_t count = 0; at < line.size() && count < most; ++count)
    at += std::max<size_t>(Utf8CharacterBytes(std::string_view(line).substr(at)), 1);
  return at < line.size() ? line.substr(0, at) + "..." : line;
}

std::string TextAt(double x, double y, const char* anchor, const std::string& style,
                   const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n",
                     x, y, anchor, style, EscapedForPage(text));
}

std::string Opened(const std::string& name, double width, double height) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
      "aria-label=\"{2}\">\n",
      width, height, EscapedForPage(name));
}

// A plane with axes.
class Plane {
 public:
  Plane(const std::string& name, double x0, double x1, double y0, double y1)
      : x0_(x0), x1_(x1), y0_(y0), y1_(y1), svg_(Opened(name, kWidth, kHeight)) {}

  double X(double v) const { return kLeft + Share(v, x0_, x1_) * (kWidth - kLeft - kRight); }
  double Y(double v) const {
    return kHeight - kBottom - Share(v, y0_, y1_) * (kHeight - kTop - kBottom);
  }
  void Axes(const std::string& x_name, const std::string& y_name) {
    for (const double tick : RoundTicks(y0_, y1_, 5)) {
      if (tick < y0_ || tick > y1_) continue;
      Line(x0_, tick, x1_, tick, "rule");
      svg_ += TextAt(kLeft - 7, Y(tick) + 4, "end", "tick", FormatNumber(tick));
    }
    for (const double tick : RoundTicks(x0_, x1_, 5)) {
      if (tick < x0_ || tick > x1_) continue;
      Line(tick, y0_, tick, y1_, "rule");
      svg_ += TextAt(X(tick), kHeight - kBottom + 17, "middle", "tick", FormatNumber(tick));
    }
    svg_ += TextAt((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", "tick", x_name);
    const double middle = (kTop + kHeight - kBottom) / 2;
    svg_ += fmt::format(
        "<text x=\"13\" y=\"{0:.1f}\" text-anchor=\"middle\" class=\"tick\" transform=\"rotate(-90 "
        "13 {0:.1f})\">{1}</text>\n",
        middle, EscapedForPage(y_name));
  }
  void Line(double xa, double ya, double xb, double yb, const char* style) {
    svg_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", X(xa),
        Y(ya), X(xb), Y(yb), style);
  }
  // With `steps`, a point's y holds from the point before it on.
  void Path(const std::vector<CurvePoint>& points, bool steps, size_t color,
            const std::string& name) {
    std::string path;
    for (const CurvePoint& p : points) {
      if (!path.empty() && steps)
        path += fmt::format("V{:.1f}H{:.1f}", Y(p.y), X(p.x));
      else
        path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : "L", X(p.x), Y(p.y));
    }
    svg_ += fmt::format("<path d=\"{}\" class=\"curve s{}\"><title>{}</title></path>\n", path,
                        color, EscapedForPage(name));
  }
  void Box(double xa, double xb, double y, const std::string& name) {
    const double left = X(xa) + 0.5, width = std::max(X(xb) - X(xa) - 1, 0.5);
    svg_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "class=\"bar\"><title>{}</title></rect>\n",
        left, Y(y), width, Y(y0_) - Y(y), EscapedForPage(name));
  }
  void Dot(double x, double y, const char* style, double radius, const std::string& name) {
    svg_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" class=\"{}\">", X(x), Y(y),
                        radius, style);
    svg_ += name.empty() ? "</circle>\n" : "<title>" + EscapedForPage(name) + "</title></circle>\n";
  }
  std::string Svg() const { return svg_ + "</svg>\n"; }

 private:
  // Halves, so that differences of the largest numbers are finite.
  static double Share(double v, double low, double high) {
    return (std::clamp(v, low, high) / 2 - low / 2) / (high / 2 - low / 2);
  }

  double x0_, x1_, y0_, y1_;
  std::string svg_;
};

// An axis that shows [low, high], also if both are equal.
std::pair<double, double> AxisOf(double low, double high) {
  constexpr double kMost = 1e300;
  low = std::clamp(low, -kMost, kMost);
  high = std::clamp(high, -kMost, kMost);
  const double room = std::max((high - low) * 0.03, std::abs(low) * 1e-9);
  if (low < high) return {low - room, high + room};
  return {low - std::max(std::abs(low) / 2, 1e-300), high + std::max(std::abs(high) / 2, 1e-300)};
}

std::string CurvesSvg(const std::string& name, const std::vector<ScoreCurve>& curves,
                      const std::vector<size_t>& classes, bool roc) {
  Plane plane(name, 0, 1, 0, 1);
  plane.Axes(roc ? "false positive rate" : "recall", roc ? "true positive rate" : "precision");
  if (roc) plane.Line(0, 0, 1, 1, "guide");
  for (size_t i = 0; i < classes.size(); ++i) {
    std::vector<CurvePoint> points = curves[classes[i]].points;
    if (!roc && !points.empty()) points.insert(points.begin(), {0, points[0].y, 0});
    plane.Path(points, !roc, i % kPageColors,
               fmt::format("class {}: area {}", classes[i], FormatShort(curves[classes[i]].area)));
  }
  return plane.Svg();
}

std::string CellSvg(double x, double y, double size, int64_t rows, int64_t of, bool right,
                    const std::string& name) {
  const double share = of > 0 ? static_cast<double>(rows) / static_cast<double>(of) : 0;
  std::string svg = fmt::format(
      "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "class=\"cell\"/>",
      EscapedForPage(name), x, y, size - 1, size - 1);
  if (rows > 0) {
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\" "
        "fill-opacity=\"{:.2f}\"/>",
        x, y, size - 1, size - 1, right ? "right" : "wrong", 0.12 + 0.88 * share);
  }
  if (size >= 20 && rows > 0) {
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" class=\"{}\">{}</text>",
        x + (size - 1) / 2, y + size / 2 + 4, share > 0.5 ? "count on" : "count",
        rows < 10000 ? fmt::format("{}", rows) : HumanCount(static_cast<uint64_t>(rows)));
  }
  return svg + "</g>\n";
}

}  // namespace

std::string EscapedForPage(std::string_view text) {
  std::string escaped;
  for (const char c : PrintableLine(text)) {
    if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')
      escaped += fmt::format("&#{};", static_cast<int>(c));
    else
      escaped += c;
  }
  return escaped;
}

std::vector<size_t> DrawnClasses(const std::vector<ScoreCurve>& curves) {
  std::vector<size_t> classes;
  for (size_t c = curves.size() == 2 ? 1 : 0; c < curves.size(); ++c)
    if (!curves[c].points.empty()) classes.push_back(c);
  std::stable_sort(classes.begin(), classes.end(),
                   [&](size_t a, size_t b) { return curves[a].area < curves[b].area; });
  classes.resize(std::min(classes.size(), kPageColors));
  std::sort(classes.begin(), classes.end());
  return classes;
}

std::string ConfusionSvg(const QualityReport& report) {
  const ScoreQuality& q = *report.scores;
  if (q.classes > kMostCells) return "";
  const int64_t columns = q.classes + (q.unanswered > 0 ? 1 : 0);
  const double size = std::clamp(560.0 / static_cast<double>(columns), 18.0, 54.0);
  const double left = 150, top = 34;
  std::string svg = Opened("confusion matrix", left + size * static_cast<double>(columns) + 6,
                           top + size * static_cast<double>(q.classes) + 6);
  svg += TextAt(left - 8, 12, "end", "tick", "label \\ answer");
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t answer = column < q.classes ? column : -1;
    svg += TextAt(left + size * (static_cast<double>(column) + 0.5), top - 8, "middle", "tick",
                  answer < 0 ? "-" : fmt::format("{}", answer));
  }
  for (int64_t label = 0; label < q.classes; ++label) {
    const double y = top + size * static_cast<double>(label);
    const std::string name = ReportedClass(report, label);
    svg += TextAt(left - 8, y + size / 2 + 4, "end", "tick", Short(name, 20));
    const int64_t of = q.counts[static_cast<size_t>(label)].labelled;
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t answer = column < q.classes ? column : -1;
      const int64_t rows = q.confusion.At(label, answer);
      svg += CellSvg(left + size * static_cast<double>(column), y, size, rows, of, label == answer,
                     fmt::format("label {}, answer {}: {} of {} rows", name,
                                 ReportedClass(report, answer), rows, of));
    }
  }
  return svg + "</svg>\n";
}

std::string RocSvg(const ScoreQuality& quality, const std::vector<size_t>& classes) {
  return CurvesSvg("ROC curves", quality.roc, classes, true);
}

std::string PrecisionRecallSvg(const ScoreQuality& quality, const std::vector<size_t>& classes) {
  return CurvesSvg("precision and recall", quality.precision_recall, classes, false);
}

std::string CalibrationSvg(const CalibrationCurve& calibration) {
  Plane plane("calibration", 0, 1, 0, 1);
  plane.Axes("confidence", "accuracy");
  for (const CalibrationBin& bin : calibration.bins) {
    if (bin.rows == 0) continue;
    plane.Box(bin.low, bin.high, bin.accuracy,
              fmt::format("confidence {} to {}: {} rows, mean {}, accuracy {}",
                          FormatNumber(bin.low), FormatNumber(bin.high), bin.rows,
                          FormatShort(bin.confidence), FormatShort(bin.accuracy)));
  }
  plane.Line(0, 0, 1, 1, "guide");
  for (const CalibrationBin& bin : calibration.bins)
    if (bin.rows > 0) plane.Dot(bin.confidence, bin.accuracy, "mark", 4, "");
  return plane.Svg();
}

std::string ResidualsSvg(const ResidualHistogram& residuals) {
  if (residuals.counts.empty()) return "";
  const int64_t most = *std::max_element(residuals.counts.begin(), residuals.counts.end());
  const auto count = static_cast<double>(residuals.counts.size());
  double low = residuals.low, high = residuals.high;
  if (low == high) std::tie(low, high) = AxisOf(low, high);
  const auto [left, right] = AxisOf(low, high);
  Plane plane("residuals", left, right, 0, static_cast<double>(most) * 1.05);
  plane.Axes("answer - label", "rows");
  for (size_t b = 0; b < residuals.counts.size(); ++b) {
    const auto place = static_cast<double>(b);
    const double from = low + (high / count - low / count) * place;
    const double to = low + (high / count - low / count) * (place + 1);
    plane.Box(from, to, static_cast<double>(residuals.counts[b]),
              fmt::format("{} to {}: {} rows", FormatNumber(from), FormatNumber(to),
                          residuals.counts[b]));
  }
  if (left < 0 && right > 0) plane.Line(0, 0, 0, static_cast<double>(most) * 1.05, "guide");
  return plane.Svg();
}

std::string AnswersSvg(const std::vector<std::pair<double, double>>& points) {
  double low = INFINITY, high = -INFINITY;
  for (const auto& [label, answer] : points) {
    for (const double v : {label, answer}) {
      if (!std::isfinite(v)) continue;
      low = std::min(low, v);
      high = std::max(high, v);
    }
  }
  if (low > high) return "";
  std::tie(low, high) = AxisOf(low, high);
  Plane plane("answers and labels", low, high, low, high);
  plane.Axes("label", "answer");
  plane.Line(low, low, high, high, "guide");
  for (const auto& [label, answer] : points)
    if (std::isfinite(label) && std::isfinite(answer)) plane.Dot(label, answer, "point", 2.4, "");
  return plane.Svg();
}

}  // namespace coracle::inline internal
