#pragma once
// Curves of scores against labels: ROC, precision and recall, calibration; and histograms.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace coracle::inline internal {

// A point of a curve: the rows with scores >= `threshold` are called positive.
struct CurvePoint {
  double x = 0, y = 0;
  double threshold = 0;
};

// A curve, and the area that sums it up. Without points and with the area nan, it is undefined.
struct ScoreCurve {
  std::vector<CurvePoint> points = {};
  double area = 0;
};

// x: the false positive rate FP / N, y: the true positive rate TP / P (Fawcett 2006, "An
// introduction to ROC analysis", algorithm 1). `positive` is 1 for each row of the class. Rows of
// equal scores are one point, so the area by trapezoids counts ties as half: it is the
// Mann-Whitney statistic. The first point is (0, 0) with the threshold infinity. Undefined if all
// rows are positive, or none, or a score is nan.
ScoreCurve RocOf(std::span<const double> scores, std::span<const uint8_t> positive);

// x: the recall R = TP / P, y: the precision P = TP / (TP + FP), at each distinct score from the
// largest on. The area is the average precision, the sum of (R_n - R_(n-1)) * P_n with R_0 = 0:
// nothing is interpolated between points (Davis and Goadrich 2006 explain why). Undefined if no row
// is positive or a score is nan.
ScoreCurve PrecisionRecallOf(std::span<const double> scores, std::span<const uint8_t> positive);

// At most `most` points (at least 2), the first and the last among them, evenly chosen.
std::vector<CurvePoint> ThinnedPoints(const std::vector<CurvePoint>& points, size_t most);

// The rows whose confidence lies in (low, high]; the first bin also has those of 0.
struct CalibrationBin {
  double low = 0, high = 0;
  int64_t rows = 0;
  double confidence = 0;  // the mean over its rows; nan for a bin without rows
  double accuracy = 0;    // the share of its rows whose answer is right; nan without rows
};

// How often answers of some confidence are right. `error` is the expected calibration error, the
// sum of rows_b / rows * |accuracy_b - confidence_b| over ten bins of equal width (Guo et al. 2017,
// "On calibration of modern neural networks", equation 3). Undefined, with no bins and the error
// nan, for no rows and for a confidence outside [0, 1].
struct CalibrationCurve {
  std::vector<CalibrationBin> bins = {};
  double error = 0;
};
CalibrationCurve CalibrationOf(std::span<const double> confidence, std::span<const uint8_t> right);

// Counts of finite values in bins of equal width, [low, high) each; the last one has its upper end
// too. Equal values are one bin.
struct ResidualHistogram {
  double low = 0, high = 0;
  std::vector<int64_t> counts = {};  // empty if no value is finite
};
ResidualHistogram HistogramOf(std::span<const double> values, size_t bins);

}  // namespace coracle::inline internal
