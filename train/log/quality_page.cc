#include <coracle/framework/base/text.h>
#include <coracle/framework/base/utf8.h>
#include <coracle/framework/base/version.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/quality_svg.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

constexpr size_t kMostRows = 1000;  // of a table of classes
constexpr size_t kMostPairs = 30, kMostCellBytes = 400;
constexpr int64_t kPictureSide = 112;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark;
  --paper: #f6f7f9; --card: #ffffff; --ink: #17202a; --soft: #566372; --line: #dde2e8;
  --accent: #1f6feb; --right: #2a9d57; --wrong: #d1495b; --on: #ffffff;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #e69f00; --c5: #56b4e9;
  --c6: #17202a; --c7: #999933; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #12161c; --card: #1b2129; --ink: #e7ecf2; --soft: #a0acb9; --line: #2b333d;
  --accent: #6ea8ff; --right: #37985f; --wrong: #cf5566; --on: #ffffff;
  --c0: #4fa8dc; --c1: #f08a45; --c2: #35c79d; --c3: #e2a3c6; --c4: #f2bd4d; --c5: #8fd0f7;
  --c6: #e7ecf2; --c7: #c4c46a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1280px; padding: 20px 22px 40px; background: var(--paper);
  color: var(--ink); font: 14px/1.45 system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif; }
h1 { margin: 0; font-size: 21px; overflow-wrap: anywhere; }
h2 { margin: 0 0 10px; font-size: 15px; }
.soft, .tick { color: var(--soft); }
p { margin: 4px 0 0; overflow-wrap: anywhere; }
.sums { display: flex; flex-wrap: wrap; gap: 10px; margin: 18px 0; }
.sums div { padding: 8px 14px; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; min-width: 118px; }
.sums b { display: block; font-size: 19px; font-weight: 650; }
.cards { display: grid; gap: 14px; grid-template-columns: repeat(auto-fit, minmax(min(430px, 100%), 1fr)); }
section { padding: 14px 16px; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; overflow-x: auto; min-width: 0; }
section.wide { grid-column: 1 / -1; }
svg { display: block; max-width: 100%; height: auto; margin: 0 auto; }
svg text { font-size: 12px; fill: var(--ink); }
svg .tick { font-size: 12px; fill: var(--soft); }
svg .count.on { fill: var(--on); }
.rule { stroke: var(--line); } .guide { stroke: var(--soft); stroke-dasharray: 4 4; }
.cell { fill: var(--paper); } .right { fill: var(--right); } .wrong { fill: var(--wrong); }
.bar { fill: var(--c0); fill-opacity: .55; } .mark { fill: var(--c1); }
.point { fill: var(--c0); fill-opacity: .55; }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); }
.s3 { stroke: var(--c3); } .s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); }
.s6 { stroke: var(--c6); } .s7 { stroke: var(--c7); }
ul.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 8px 0 0; padding: 0; list-style: none; }
.legend svg { display: inline-block; margin: 0 5px 3px 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: 4px 11px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: break-word; max-width: 36ch; }
th:first-child, td:first-child { min-width: 11ch; }
th:last-child, td:last-child { padding-right: 0; }
th.n, td.n { text-align: right; }
td.n { white-space: nowrap; }
th.n + th:not(.n), td.n + td:not(.n) { padding-left: 12px; }
td.bad { color: var(--wrong); }
td img { display: block; image-rendering: pixelated; min-width: 56px; border-radius: 4px; }
)";

std::string Cell(const std::string& text, const char* style = "") {
  std::string shown = text;
  if (shown.size() > kMostCellBytes) {
    size_t end = kMostCellBytes;
    while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;  // UTF-8
    shown = shown.substr(0, end) + "...";
  }
  return *style ? fmt::format("<td class=\"{}\">{}</td>", style, EscapedForPage(shown))
                : "<td>" + EscapedForPage(shown) + "</td>";
}

std::string NumberCell(double v, bool marked = false) {
  return Cell(std::isnan(v) ? "-" : FormatShort(v) + (marked ? "*" : ""), "n");
}

// `numbers`: the columns from this one on hold numbers.
std::string Head(const std::vector<std::string>& names, size_t first = SIZE_MAX,
                 size_t last = SIZE_MAX) {
  std::string row = "<tr>";
  for (size_t i = 0; i < names.size(); ++i) {
    row += i >= first && i <= last ? "<th class=\"n\">" : "<th>";
    row += EscapedForPage(names[i]) + "</th>";
  }
  return row + "</tr>\n";
}

std::string Card(const std::string& title, const std::string& body, bool wide = false) {
  if (body.empty()) return "";
  return fmt::format("<section{}><h2>{}</h2>\n{}</section>\n", wide ? " class=\"wide\"" : "", title,
                     body);
}

std::string QualityCells(const std::string& name, const ClassQuality& q) {
  return "<tr>" + Cell(name) + NumberCell(q.precision, q.no_precision) +
         NumberCell(q.recall, q.no_recall) + NumberCell(q.f1) +
         Cell(fmt::format("{}", q.rows), "n");
}

std::string ClassTable(const QualityReport& report) {
  const ScoreQuality& q = *report.scores;
  std::string table =
      "<table>" +
      Head({"class", "precision", "recall", "F1", "rows", "AUC", "average precision"}, 1);
  const size_t shown = std::min(q.by_class.size(), kMostRows);
  for (size_t c = 0; c < shown; ++c) {
    table += QualityCells(ReportedClass(report, static_cast<int64_t>(c)), q.by_class[c]) +
             NumberCell(q.roc[c].area) + NumberCell(q.precision_recall[c].area) + "</tr>\n";
  }
  table += QualityCells("macro average", q.macro) + NumberCell(q.macro_auc) +
           NumberCell(q.macro_average_precision) + "</tr>\n";
  table += QualityCells("micro average", q.micro) + Cell("") + Cell("") + "</tr>\n";
  table += QualityCells("weighted average", q.weighted) + Cell("") + Cell("") + "</tr>\n</table>";
  if (shown < q.by_class.size())
    table += fmt::format("<p class=\"soft\">{} more classes are left out.</p>",
                         q.by_class.size() - shown);
  return table;
}

std::string Confusion(const QualityReport& report) {
  const std::string drawing = ConfusionSvg(report);
  if (!drawing.empty()) return drawing;
  std::string table = "<table>" + Head({"label", "answer", "rows"}, 2);
  for (const ConfusedPair& pair : MostConfused(*report.scores, kMostPairs)) {
    table += "<tr>" + Cell(ReportedClass(report, pair.label)) +
             Cell(ReportedClass(report, pair.answer)) + Cell(fmt::format("{}", pair.rows), "n") +
             "</tr>\n";
  }
  return table + "</table>";
}

std::string Legend(const QualityReport& report, const std::vector<ScoreCurve>& curves,
                   const std::vector<size_t>& classes) {
  std::string list = "<ul class=\"legend\">";
  for (size_t i = 0; i < classes.size(); ++i) {
    list += fmt::format(
        "<li><svg width=\"18\" height=\"8\"><line x1=\"0\" y1=\"4\" x2=\"18\" y2=\"4\" "
        "class=\"curve s{}\"/></svg>{} <span class=\"soft\">{}</span></li>",
        i % kPageColors,
        EscapedForPage(
            std::string(CutToWidth(ReportedClass(report, static_cast<int64_t>(classes[i])), 40))),
        FormatShort(curves[classes[i]].area));
  }
  list += "</ul>";
  if (curves.size() > 2 && classes.size() < curves.size())
    list += "<p class=\"soft\">The classes with the smallest areas.</p>";
  return list;
}

std::string Calibration(const QualityReport& report) {
  const ScoreQuality& q = *report.scores;
  if (!q.no_probabilities.empty()) return "";
  return CalibrationSvg(q.calibration) +
         fmt::format(
             "<p class=\"soft\">Bars show how often answers of a confidence are right, dots "
             "the mean confidence in the bin. Expected calibration error: {}.</p>",
             FormatShort(q.calibration.error));
}

std::string WorstRow(const QualityReport& report, const ReportedRow& row, bool pictures) {
  std::string text = "<tr>";
  if (pictures) {
    const std::string url = !row.picture.empty() ? PictureUrl(row.picture, kPictureSide) : "";
    text += url.empty() ? Cell("") : "<td><img alt=\"\" src=\"" + url + "\"></td>";
  }
  text += Cell(row.place) + Cell(row.label) +
          Cell(row.answer, report.scores && !row.right ? "bad" : "");
  for (const auto& number : {row.label_score, row.answer_score, row.residual})
    if (number) text += NumberCell(*number);
  for (const std::string& cell : row.cells) text += Cell(cell);
  return text + "</tr>\n";
}

std::string Worst(const QualityReport& report) {
  if (report.worst.empty()) return "";
  const bool pictures = std::any_of(report.worst.begin(), report.worst.end(),
                                    [](const ReportedRow& row) { return !row.picture.empty(); });
  std::vector<std::string> names = {"row", "label", "answer"};
  if (pictures) names.insert(names.begin(), "picture");
  const size_t first = names.size();
  if (report.scores)
    names.insert(names.end(), {"score of label", "score of answer"});
  else
    names.emplace_back("answer - label");
  const size_t last = names.size() - 1;
  names.insert(names.end(), report.columns.begin(), report.columns.end());
  std::string table = "<table>" + Head(names, first, last);
  for (const ReportedRow& row : report.worst) table += WorstRow(report, row, pictures);
  return table + "</table>";
}

std::string ScoreCards(const QualityReport& report) {
  const ScoreQuality& q = *report.scores;
  std::string cards = Card("Confusion matrix", Confusion(report));
  cards += Card("Classes", ClassTable(report));
  const std::vector<size_t> roc = DrawnClasses(q.roc), area = DrawnClasses(q.precision_recall);
  if (!roc.empty()) cards += Card("ROC", RocSvg(q, roc) + Legend(report, q.roc, roc));
  if (!area.empty()) {
    cards += Card("Precision and recall",
                  PrecisionRecallSvg(q, area) + Legend(report, q.precision_recall, area));
  }
  return cards + Card("Calibration", Calibration(report));
}

}  // namespace

std::string ReportPage(const QualityReport& report) {
  const int64_t rows = report.scores ? report.scores->rows : report.numbers->rows;
  const std::string title = EscapedForPage(report.model);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"generator\" content=\"Coracle {}.{}.{}\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n<p class=\"soft\">{} rows of {}, output "
      "{}</p>\n",
      CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR, CORACLE_VERSION_PATCH, title, kStyle, title,
      rows, EscapedForPage(report.data), EscapedForPage(report.output));
  page += "<div class=\"sums\">";
  for (const auto& [name, value] : ReportedSums(report)) {
    page += fmt::format("<div><span class=\"soft\">{}</span><b>{}</b></div>\n", name,
                        std::isnan(value) ? "-" : FormatShort(value));
  }
  page += "</div>\n";
  for (const std::string& remark : ReportRemarks(report))
    page += "<p class=\"soft\">" + EscapedForPage(remark) + "</p>\n";
  page += "<div class=\"cards\" style=\"margin-top:14px\">\n";
  if (report.scores) page += ScoreCards(report);
  if (report.numbers) {
    page += Card("Answers and labels", AnswersSvg(report.points)) +
            Card("Residuals", ResidualsSvg(report.numbers->residuals));
  }
  page += Card("Worst rows", Worst(report), true);
  return page + "</div>\n</body>\n</html>\n";
}

}  // namespace coracle::inline internal
