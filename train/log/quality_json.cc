#include <coracle/train/log/format.h>
#include <coracle/train/log/quality_report.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace coracle::inline internal {
namespace {

using Json = nlohmann::ordered_json;

// Numbers that JSON lacks are texts.
Json Number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json OfQuality(const ClassQuality& q) {
  Json json = {{"precision", Number(q.precision)},
               {"recall", Number(q.recall)},
               {"f1", Number(q.f1)},
               {"rows", q.rows}};
  if (q.no_precision) json["no_precision"] = true;
  if (q.no_recall) json["no_recall"] = true;
  return json;
}

Json OfCurve(const ScoreCurve& curve) {
  Json json = {{"area", Number(curve.area)}, {"points", Json::array()}};
  for (const CurvePoint& p : curve.points)
    json["points"].push_back({{"x", p.x}, {"y", p.y}, {"threshold", Number(p.threshold)}});
  return json;
}

Json OfCalibration(const CalibrationCurve& curve) {
  Json json = {{"error", Number(curve.error)}, {"bins", Json::array()}};
  for (const CalibrationBin& bin : curve.bins) {
    json["bins"].push_back({{"low", bin.low},
                            {"high", bin.high},
                            {"rows", bin.rows},
                            {"confidence", Number(bin.confidence)},
                            {"accuracy", Number(bin.accuracy)}});
  }
  return json;
}

Json OfScores(const QualityReport& report) {
  const ScoreQuality& q = *report.scores;
  Json json = {{"accuracy", q.accuracy},
               {"k", q.k},
               {"top_k", q.top_k},
               {"unanswered", q.unanswered},
               {"macro", OfQuality(q.macro)},
               {"micro", OfQuality(q.micro)}};
  json["weighted"] = OfQuality(q.weighted);
  json["macro_auc"] = Number(q.macro_auc);
  json["macro_average_precision"] = Number(q.macro_average_precision);
  json["log_loss"] = Number(q.log_loss);
  json["brier"] = Number(q.brier);
  if (!q.no_probabilities.empty()) json["no_probabilities"] = Utf8(q.no_probabilities);
  json["calibration"] = OfCalibration(q.calibration);
  json["classes"] = Json::array();
  for (size_t c = 0; c < q.by_class.size(); ++c) {
    Json own = {{"class", c}};
    if (c < report.classes.size()) own["name"] = Utf8(report.classes[c]);
    own.update(OfQuality(q.by_class[c]));
    own["roc"] = OfCurve(q.roc[c]);
    own["precision_recall"] = OfCurve(q.precision_recall[c]);
    json["classes"].push_back(own);
  }
  json["confusion"] = Json::array();
  for (const auto& [place, rows] : q.confusion.cells)
    json["confusion"].push_back({{"label", place.first}, {"answer", place.second}, {"rows", rows}});
  return json;
}

Json OfNumbers(const NumberQuality& q) {
  Json json = {{"mae", Number(q.mean_absolute)},
               {"rmse", Number(q.root_mean_square)},
               {"r2", Number(q.r2)},
               {"median_absolute_error", Number(q.median_absolute)},
               {"largest_absolute_error", Number(q.largest_absolute)},
               {"mean_residual", Number(q.mean_residual)},
               {"not_finite", q.not_finite}};
  json["residuals"] = {
      {"low", q.residuals.low}, {"high", q.residuals.high}, {"counts", q.residuals.counts}};
  return json;
}

Json OfRow(const QualityReport& report, const ReportedRow& row) {
  Json json = {
      {"place", Utf8(row.place)}, {"label", Utf8(row.label)}, {"answer", Utf8(row.answer)}};
  if (report.scores) json["right"] = row.right;
  if (row.label_score) json["label_score"] = Number(*row.label_score);
  if (row.answer_score) json["answer_score"] = Number(*row.answer_score);
  if (row.residual) json["residual"] = Number(*row.residual);
  json["cells"] = Json::array();
  for (const std::string& cell : row.cells) json["cells"].push_back(Utf8(cell));
  return json;
}

}  // namespace

std::string ReportJson(const QualityReport& report) {
  Json json = {{"format", "coracle.report"}, {"version", 1}};
  json["model"] = Utf8(report.model);
  json["data"] = Utf8(report.data);
  json["output"] = Utf8(report.output);
  json["rows"] = report.scores ? report.scores->rows : report.numbers->rows;
  if (report.scores) json["scores"] = OfScores(report);
  if (report.numbers) json["numbers"] = OfNumbers(*report.numbers);
  json["columns"] = Json::array();
  for (const std::string& column : report.columns) json["columns"].push_back(Utf8(column));
  json["worst"] = Json::array();
  for (const ReportedRow& row : report.worst) json["worst"].push_back(OfRow(report, row));
  json["notes"] = Json::array();
  for (const std::string& note : report.notes) json["notes"].push_back(Utf8(note));
  return json.dump(1) + "\n";
}

}  // namespace coracle::inline internal
