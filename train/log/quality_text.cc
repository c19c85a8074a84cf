#include <coracle/framework/base/text.h>
#include <coracle/framework/base/utf8.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/quality_report.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

constexpr int64_t kMostInMatrix = 20;
constexpr size_t kPairs = 20, kMostClasses = 100, kCellWidth = 24;

// Cuts a text to `most` characters.
std::string Cut(const std::string& text, size_t most) {
  std::string line = PrintableLine(text);
  size_t count = 0, at = 0;
  while (at < line.size() && count < most) {
    at += std::max<size_t>(Utf8CharacterBytes(std::string_view(line).substr(at)), 1);
    ++count;
  }
  if (at < line.size()) line = line.substr(0, at) + "...";
  return line;
}

// Aligns columns: the first `left` to the left, others to the right.
std::string Aligned(const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string room(widths[i] - DisplayWidth(row[i]), ' ');
      line += (i > 0 ? "  " : "") + (i < left ? row[i] + room : room + row[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::vector<std::string> QualityRow(const std::string& name, const ClassQuality& q, double auc,
                                    double precision_area) {
  return {name,
          FormatShort(q.precision) + (q.no_precision ? "*" : " "),
          FormatShort(q.recall) + (q.no_recall ? "*" : " "),
          FormatShort(q.f1),
          fmt::format("{}", q.rows),
          FormatShort(auc),
          FormatShort(precision_area)};
}

std::string ClassesText(const QualityReport& report) {
  const ScoreQuality& q = *report.scores;
  std::vector<std::vector<std::string>> rows = {
      {"class", "precision ", "recall ", "F1", "rows", "AUC", "average precision"}};
  const size_t shown = std::min(q.by_class.size(), kMostClasses);
  for (size_t c = 0; c < shown; ++c) {
    rows.push_back(QualityRow(Cut(ReportedClass(report, static_cast<int64_t>(c)), 32),
                              q.by_class[c], q.roc[c].area, q.precision_recall[c].area));
  }
  rows.push_back(QualityRow("macro average", q.macro, q.macro_auc, q.macro_average_precision));
  rows.push_back(QualityRow("micro average", q.micro, NAN, NAN));
  rows.push_back(QualityRow("weighted average", q.weighted, NAN, NAN));
  for (size_t i = rows.size() - 2; i < rows.size(); ++i) rows[i].resize(5);
  std::string text = Aligned(rows, 1);
  if (shown < q.by_class.size())
    text += fmt::format("({} more classes: see --out=FILE.json)\n", q.by_class.size() - shown);
  return text;
}

std::string PairsText(const QualityReport& report) {
  std::vector<std::vector<std::string>> rows = {{"label", "answer", "rows"}};
  for (const ConfusedPair& pair : MostConfused(*report.scores, kPairs)) {
    rows.push_back({Cut(ReportedClass(report, pair.label), 32),
                    Cut(ReportedClass(report, pair.answer), 32), fmt::format("{}", pair.rows)});
  }
  if (rows.size() == 1) return "no two classes are confused\n";
  return "classes that are confused most\n" + Aligned(rows, 2);
}

std::string MatrixText(const QualityReport& report) {
  const ScoreQuality& q = *report.scores;
  if (q.classes > kMostInMatrix) return PairsText(report);
  std::vector<std::vector<std::string>> rows = {{"label"}};
  for (int64_t c = 0; c < q.classes; ++c) rows[0].push_back(fmt::format("{}", c));
  if (q.unanswered > 0) rows[0].emplace_back("-");
  for (int64_t label = 0; label < q.classes; ++label) {
    rows.push_back({Cut(ReportedClass(report, label), 32)});
    for (int64_t c = 0; c < q.classes; ++c)
      rows.back().push_back(fmt::format("{}", q.confusion.At(label, c)));
    if (q.unanswered > 0) rows.back().push_back(fmt::format("{}", q.confusion.At(label, -1)));
  }
  return "confusion matrix: rows are labels, columns are answers\n" + Aligned(rows, 1);
}

std::string WorstText(const QualityReport& report) {
  if (report.worst.empty()) return "";
  const bool classes = report.scores.has_value();
  std::vector<std::vector<std::string>> rows = {
      {"row", "label", "answer", classes ? "score of label" : "residual"}};
  for (const std::string& column : report.columns) rows[0].push_back(Cut(column, kCellWidth));
  for (const ReportedRow& row : report.worst) {
    const auto number = classes ? row.label_score : row.residual;
    rows.push_back({Cut(row.place, 60), Cut(row.label, 32), Cut(row.answer, 32),
                    number ? FormatShort(*number) : ""});
    for (const std::string& cell : row.cells) rows.back().push_back(Cut(cell, kCellWidth));
  }
  return "\nworst rows\n" + Aligned(rows, 3);
}

}  // namespace

std::vector<ConfusedPair> MostConfused(const ScoreQuality& quality, size_t most) {
  std::vector<ConfusedPair> pairs;
  for (const auto& [place, rows] : quality.confusion.cells)
    if (place.first != place.second) pairs.push_back({place.first, place.second, rows});
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const auto& a, const auto& b) { return a.rows > b.rows; });
  pairs.resize(std::min(pairs.size(), most));
  return pairs;
}

std::string ReportedClass(const QualityReport& report, int64_t index) {
  if (index < 0) return "-";
  const std::string number = fmt::format("{}", index);
  const bool named = index < static_cast<int64_t>(report.classes.size());
  const std::string& name = named ? report.classes[static_cast<size_t>(index)] : number;
  return name == number ? number : number + ": " + name;
}

std::vector<std::pair<std::string, double>> ReportedSums(const QualityReport& report) {
  if (report.scores) {
    const ScoreQuality& q = *report.scores;
    std::vector<std::pair<std::string, double>> sums = {{"accuracy", q.accuracy}};
    if (q.k > 1 && q.k < q.classes) sums.emplace_back(fmt::format("top {}", q.k), q.top_k);
    sums.insert(sums.end(), {{"macro F1", q.macro.f1},
                             {"macro AUC", q.macro_auc},
                             {"macro average precision", q.macro_average_precision},
                             {"log loss", q.log_loss},
                             {"Brier score", q.brier},
                             {"calibration error", q.calibration.error}});
    return sums;
  }
  const NumberQuality& q = *report.numbers;
  return {{"MAE", q.mean_absolute},
          {"RMSE", q.root_mean_square},
          {"R2", q.r2},
          {"median absolute error", q.median_absolute},
          {"largest absolute error", q.largest_absolute},
          {"mean residual", q.mean_residual}};
}

std::vector<std::string> ReportRemarks(const QualityReport& report) {
  std::vector<std::string> remarks;
  if (report.scores) {
    const ScoreQuality& q = *report.scores;
    if (!q.no_probabilities.empty()) {
      remarks.push_back("log loss, Brier score and calibration are undefined: " +
                        q.no_probabilities);
    }
    if (q.unanswered > 0)
      remarks.push_back(
          fmt::format("{} of {} rows have a score that is nan and count as wrong: answer \"-\"",
                      q.unanswered, q.rows));
    int64_t marked = 0;
    for (const ClassQuality& own : q.by_class) marked += own.no_precision || own.no_recall;
    if (marked > 0) {
      remarks.push_back(
          "* is 0 / 0, which counts as 0: no row has this answer (precision) or label (recall); "
          "averages leave out classes without both");
    }
    if (std::isinf(q.log_loss))
      remarks.emplace_back("the log loss is infinite: the score of a label is 0");
  } else {
    const NumberQuality& q = *report.numbers;
    if (q.constant_labels) remarks.emplace_back("R2 is undefined: all labels are equal");
    if (q.not_finite > 0)
      remarks.push_back(fmt::format("{} of {} answers are nan or infinite", q.not_finite, q.rows));
  }
  remarks.insert(remarks.end(), report.notes.begin(), report.notes.end());
  return remarks;
}

std::string ReportText(const QualityReport& report) {
  const int64_t rows = report.scores ? report.scores->rows : report.numbers->rows;
  std::string text = fmt::format("{} on {}: {} rows, output {}\n\n", PrintableLine(report.model),
                                 PrintableLine(report.data), rows, PrintableLine(report.output));
  std::vector<std::vector<std::string>> sums;
  for (const auto& [name, value] : ReportedSums(report)) sums.push_back({name, FormatShort(value)});
  text += Aligned(sums, 1);
  if (report.scores) text += "\n" + ClassesText(report) + "\n" + MatrixText(report);
  text += WorstText(report);
  const std::vector<std::string> remarks = ReportRemarks(report);
  if (!remarks.empty()) text += "\n";
  for (const std::string& remark : remarks) text += PrintableLine(remark) + "\n";
  return text;
}

}  // namespace coracle::inline internal
