#include <coracle/framework/base/error.h>
#include <coracle/train/report/quality.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace coracle::inline internal {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kSumTolerance = 0.01;  // rows of scores in half precision deviate this much
// Of one curve, and of all curves of a kind: reports of many classes stay small.
constexpr size_t kCurvePoints = 512, kAllCurvePoints = 40000, kLeastCurvePoints = 16;

bool AnyNan(std::span<const double> values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

bool IsShare(double v) { return v >= 0 && v <= 1; }

void CheckRows(const ScoredRows& rows) {
  if (rows.rows() == 0) ThrowInvalid("there are no rows to measure");
  if (rows.classes < 1 ||
      rows.scores.size() / static_cast<size_t>(rows.classes) != rows.labels.size()) {
    throw InternalError("the scores do not have one row for each label");
  }
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const int64_t label = rows.labels[static_cast<size_t>(r)];
    if (label < 0 || label >= rows.numbered()) {
      throw Error(ErrorCode::kOutOfRange,
                  fmt::format("the label of row {} is {}, which must lie in [0, {})", r, label,
                              rows.numbered()));
    }
    const double first = rows.Row(r)[0];
    if (rows.classes == 1 && !std::isnan(first) && !IsShare(first)) {
      ThrowInvalid(
          fmt::format("the only score of row {} is {}: it must be a probability, that of "
                      "class 1, to tell which class it means",
                      r, first));
    }
  }
}

// The probability of a class, or its score.
double ScoreOf(std::span<const double> row, int64_t c) {
  if (row.size() > 1) return row[static_cast<size_t>(c)];
  return c == 1 ? row[0] : 1 - row[0];
}

// Why the scores are not probabilities, or "".
std::string NoProbabilities(const ScoredRows& rows) {
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const auto row = rows.Row(r);
    if (AnyNan(row)) return fmt::format("row {} has a score that is nan", r);
    for (const double v : row) {
      if (!IsShare(v))
        return fmt::format("row {} has the score {}, so scores are not probabilities", r, v);
    }
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    if (row.size() > 1 && std::abs(sum - 1) > kSumTolerance)
      return fmt::format("the scores of row {} sum to {}, so they are not probabilities", r, sum);
  }
  return "";
}

void Count(const ScoredRows& rows, ScoreQuality* q) {
  q->counts.resize(static_cast<size_t>(q->classes));
  int64_t right = 0, among = 0;
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const auto row = rows.Row(r);
    const int64_t label = rows.labels[static_cast<size_t>(r)], answer = BestClass(row);
    q->confusion.cells[{label, answer}] += 1;
    ClassCounts& own = q->counts[static_cast<size_t>(label)];
    own.labelled += 1;
    own.right += answer == label;
    right += answer == label;
    among += AmongBest(row, label, q->k);
    if (answer >= 0)
      q->counts[static_cast<size_t>(answer)].answered += 1;
    else
      q->unanswered += 1;
  }
  q->accuracy = static_cast<double>(right) / static_cast<double>(q->rows);
  q->top_k = static_cast<double>(among) / static_cast<double>(q->rows);
  for (const ClassCounts& counts : q->counts) q->by_class.push_back(QualityOf(counts));
  q->macro = AverageQuality(q->counts, MetricAverage::kMacro);
  q->micro = AverageQuality(q->counts, MetricAverage::kMicro);
  q->weighted = AverageQuality(q->counts, MetricAverage::kWeighted);
}

double MeanArea(const std::vector<ScoreCurve>& curves) {
  double sum = 0;
  int64_t defined = 0;
  for (const ScoreCurve& curve : curves) {
    if (std::isnan(curve.area)) continue;
    sum += curve.area;
    ++defined;
  }
  return defined > 0 ? sum / static_cast<double>(defined) : kNan;
}

void DrawCurves(const ScoredRows& rows, ScoreQuality* q) {
  std::vector<double> scores(rows.labels.size());
  std::vector<uint8_t> positive(rows.labels.size());
  const size_t most = std::clamp(kAllCurvePoints / static_cast<size_t>(q->classes),
                                 kLeastCurvePoints, kCurvePoints);
  for (int64_t c = 0; c < q->classes; ++c) {
    for (size_t r = 0; r < scores.size(); ++r) {
      const auto row = rows.Row(static_cast<int64_t>(r));
      // -p orders rows like 1 - p, without its rounding.
      scores[r] = row.size() > 1 ? row[static_cast<size_t>(c)] : c == 1 ? row[0] : -row[0];
      positive[r] = rows.labels[r] == c;
    }
    q->roc.push_back(RocOf(scores, positive));
    q->precision_recall.push_back(PrecisionRecallOf(scores, positive));
    for (ScoreCurve* curve : {&q->roc.back(), &q->precision_recall.back()})
      curve->points = ThinnedPoints(curve->points, most);
  }
  q->macro_auc = MeanArea(q->roc);
  q->macro_average_precision = MeanArea(q->precision_recall);
}

void MeasureProbabilities(const ScoredRows& rows, ScoreQuality* q) {
  q->no_probabilities = NoProbabilities(rows);
  if (!q->no_probabilities.empty()) {
    q->log_loss = q->brier = q->calibration.error = kNan;
    return;
  }
  std::vector<double> confidence;
  std::vector<uint8_t> right;
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const auto row = rows.Row(r);
    const int64_t label = rows.labels[static_cast<size_t>(r)], answer = BestClass(row);
    q->log_loss -= std::log(ScoreOf(row, label));
    for (int64_t c = 0; c < q->classes; ++c) {
      const double off = ScoreOf(row, c) - (c == label ? 1 : 0);
      q->brier += off * off;
    }
    confidence.push_back(ScoreOf(row, answer));
    right.push_back(answer == label);
  }
  q->log_loss = q->log_loss / static_cast<double>(q->rows) + 0.0;  // not -0
  q->brier /= static_cast<double>(q->rows);
  q->calibration = CalibrationOf(confidence, right);
}

// The root of a sum of squares that may lie beyond the largest number: scale * sqrt(sum).
struct ScaledSquares {
  double scale = 0, sum = 0;
  explicit ScaledSquares(std::span<const double> values) {
    for (const double v : values) scale = std::max(scale, std::abs(v));
    if (AnyNan(values)) scale = kNan;
    if (!(scale > 0) || std::isinf(scale)) {
      sum = scale > 0 ? 1 : 0;
      return;
    }
    for (const double v : values) sum += (v / scale) * (v / scale);
  }
};

double MeanOf(std::span<const double> values) {
  double scale = 0, sum = 0;
  for (const double v : values) scale = std::max(scale, std::abs(v));
  if (!(scale > 1e280) || std::isinf(scale)) scale = 1;  // only sums of huge values overflow
  for (const double v : values) sum += v / scale;
  return sum / static_cast<double>(values.size()) * scale;
}

double MedianOf(std::vector<double> values) {
  if (AnyNan(values)) return kNan;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return values[middle - 1] / 2 + values[middle] / 2;
}

double R2Of(std::span<const double> residuals, std::span<const double> labels) {
  const double mean = MeanOf(labels);
  std::vector<double> off;
  for (const double label : labels) off.push_back(label - mean);
  const ScaledSquares left(residuals), all(off);
  if (std::isnan(left.scale) || left.scale == 0) return left.scale == 0 ? 1 : kNan;
  const double ratio = left.scale / all.scale;
  return 1 - ratio * ratio * (left.sum / all.sum);
}

}  // namespace

std::span<const double> ScoredRows::Row(int64_t row) const {
  const auto width = static_cast<size_t>(classes);
  return std::span(scores).subspan(static_cast<size_t>(row) * width, width);
}

ClassQuality QualityOf(const ClassCounts& counts) {
  ClassQuality q;
  const auto right = static_cast<double>(counts.right);
  const auto labelled = static_cast<double>(counts.labelled);
  const auto answered = static_cast<double>(counts.answered);
  q.rows = counts.labelled;
  q.no_precision = counts.answered == 0;
  q.no_recall = counts.labelled == 0;
  if (!q.no_precision) q.precision = right / answered;
  if (!q.no_recall) q.recall = right / labelled;
  if (!q.no_precision || !q.no_recall) q.f1 = 2 * right / (labelled + answered);
  return q;
}

ClassQuality AverageQuality(std::span<const ClassCounts> classes, MetricAverage average) {
  ClassCounts all;
  ClassQuality sum;
  double weights = 0;
  for (const ClassCounts& counts : classes) {
    if (counts.labelled == 0 && counts.answered == 0) continue;
    const ClassQuality own = QualityOf(counts);
    const double weight =
        average == MetricAverage::kWeighted ? static_cast<double>(counts.labelled) : 1;
    weights += weight;
    sum.precision += weight * own.precision;
    sum.recall += weight * own.recall;
    sum.f1 += weight * own.f1;
    sum.no_precision |= own.no_precision;
    sum.no_recall |= own.no_recall;
    all.right += counts.right;
    all.labelled += counts.labelled;
    all.answered += counts.answered;
  }
  if (weights == 0) return {kNan, kNan, kNan, all.labelled, true, true};
  if (average == MetricAverage::kMicro) return QualityOf(all);
  sum.precision /= weights;
  sum.recall /= weights;
  sum.f1 /= weights;
  sum.rows = all.labelled;
  return sum;
}

int64_t BestClass(std::span<const double> scores) {
  if (AnyNan(scores)) return -1;
  if (scores.size() == 1) return scores[0] > 0.5 ? 1 : 0;
  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

bool AmongBest(std::span<const double> scores, int64_t label, int64_t k) {
  if (scores.size() == 1) return !std::isnan(scores[0]) && (k > 1 || BestClass(scores) == label);
  const double own = scores[static_cast<size_t>(label)];
  if (std::isnan(own)) return false;
  int64_t before = 0;
  for (size_t c = 0; c < scores.size(); ++c) {
    before += std::isnan(scores[c]) || scores[c] > own ||
              (scores[c] == own && static_cast<int64_t>(c) < label);
  }
  return before < k;
}

int64_t ConfusionCounts::At(int64_t label, int64_t answer) const {
  const auto found = cells.find({label, answer});
  return found == cells.end() ? 0 : found->second;
}

ScoreQuality MeasureScores(const ScoredRows& rows, int64_t k) {
  CheckRows(rows);
  ScoreQuality q;
  q.rows = rows.rows();
  q.classes = rows.numbered();
  q.k = k;
  Count(rows, &q);
  DrawCurves(rows, &q);
  MeasureProbabilities(rows, &q);
  return q;
}

double LeadOverLabel(std::span<const double> scores, int64_t label) {
  if (AnyNan(scores)) return INFINITY;
  double other = -INFINITY;
  for (int64_t c = 0; c < std::max<int64_t>(static_cast<int64_t>(scores.size()), 2); ++c)
    if (c != label) other = std::max(other, ScoreOf(scores, c));
  const double own = ScoreOf(scores, label);
  return own == other ? 0 : other - own;
}

NumberQuality MeasureNumbers(std::span<const double> answers, std::span<const double> labels) {
  if (answers.empty()) ThrowInvalid("there are no rows to measure");
  if (answers.size() != labels.size()) ThrowInvalid("there must be one label for each answer");
  NumberQuality q;
  q.rows = static_cast<int64_t>(answers.size());
  std::vector<double> residuals, absolute;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!std::isfinite(labels[i])) {
      ThrowInvalid(fmt::format("the label of row {} is {}; it must be finite", i, labels[i]));
    }
    q.not_finite += !std::isfinite(answers[i]);
    residuals.push_back(answers[i] - labels[i]);
    absolute.push_back(std::abs(residuals.back()));
  }
  q.mean_absolute = MeanOf(absolute);
  const ScaledSquares squares(residuals);
  q.root_mean_square = squares.scale * std::sqrt(squares.sum / static_cast<double>(q.rows));
  q.median_absolute = MedianOf(absolute);
  q.largest_absolute =
      AnyNan(absolute) ? kNan : *std::max_element(absolute.begin(), absolute.end());
  q.mean_residual = MeanOf(residuals);
  const auto [least, most] = std::minmax_element(labels.begin(), labels.end());
  q.constant_labels = *least == *most;
  q.r2 = q.constant_labels ? kNan : R2Of(residuals, labels);
  q.residuals = HistogramOf(residuals, 20);
  return q;
}

}  // namespace coracle::inline internal
