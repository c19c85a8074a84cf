#pragma once
// A report on the quality of a model: as text, as JSON, and as a web page.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/report/quality.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// A row of the data with the model's answer. Texts may hold any bytes.
struct ReportedRow {
  std::string place = {};  // "rows.csv:3"
  std::string label = {}, answer = {};
  bool right = false;                      // of classes
  std::optional<double> label_score = {};  // of classes: the score of the label
  std::optional<double> answer_score = {};
  std::optional<double> residual = {};  // of numbers
  std::vector<std::string> cells = {};  // of QualityReport::columns
  Tensor picture = {};                  // uint8 [C, H, W] with C of 1 or 3; or without a dtype
};

struct QualityReport {
  std::string model = {}, data = {}, output = {};
  std::vector<std::string> classes = {};  // names; as many as the classes of `scores`
  std::optional<ScoreQuality> scores = {};
  std::optional<NumberQuality> numbers = {};
  std::vector<std::pair<double, double>> points = {};  // of numbers: labels and answers to draw
  std::vector<std::string> columns = {};
  std::vector<ReportedRow> worst = {};  // worst first
  std::vector<std::string> notes = {};
};

// For a terminal. The confusion matrix is shown for at most 20 classes; for more, the pairs of
// classes that are confused most.
std::string ReportText(const QualityReport& report);

// The format coracle.report of docs/json.md.
std::string ReportJson(const QualityReport& report);

// One HTML page that needs no other file and runs no script, whatever texts the report contains.
std::string ReportPage(const QualityReport& report);

// Pairs of a label and a wrong answer, the most frequent first; at most `most`.
struct ConfusedPair {
  int64_t label = 0, answer = 0, rows = 0;
};
std::vector<ConfusedPair> MostConfused(const ScoreQuality& quality, size_t most);

// "2: Iris-virginica", or the number alone for a class without another name; "-" for -1.
std::string ReportedClass(const QualityReport& report, int64_t index);

// The numbers that sum up the report, by their names: accuracy, log loss, ...
std::vector<std::pair<std::string, double>> ReportedSums(const QualityReport& report);

// Remarks on values that are undefined or 0 for want of rows, then the notes of the report.
std::vector<std::string> ReportRemarks(const QualityReport& report);

}  // namespace coracle::inline internal
