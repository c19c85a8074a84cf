#include <coracle/train/report/curves.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace coracle::inline internal {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kBins = 10;

bool HasNan(std::span<const double> values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

// The counts of positive rows, true and false, among the scores down to a threshold.
struct Threshold {
  double score = 0;
  int64_t right = 0, wrong = 0;
};

// For each distinct score, from the largest one on.
std::vector<Threshold> ThresholdsOf(std::span<const double> scores,
                                    std::span<const uint8_t> positive) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<Threshold> thresholds;
  Threshold sum;
  for (size_t i = 0; i < order.size(); ++i) {
    sum.score = scores[order[i]];
    (positive[order[i]] ? sum.right : sum.wrong) += 1;
    if (i + 1 == order.size() || scores[order[i + 1]] != sum.score) thresholds.push_back(sum);
  }
  return thresholds;
}

}  // namespace

ScoreCurve RocOf(std::span<const double> scores, std::span<const uint8_t> positive) {
  ScoreCurve curve{{}, kNan};
  if (scores.empty() || HasNan(scores)) return curve;
  const std::vector<Threshold> thresholds = ThresholdsOf(scores, positive);
  const auto ones = static_cast<double>(thresholds.back().right);
  const auto zeros = static_cast<double>(thresholds.back().wrong);
  if (ones == 0 || zeros == 0) return curve;
  curve.points.push_back({0, 0, std::numeric_limits<double>::infinity()});
  double twice = 0;  // of the area in rows: an integer, so it is exact below 2^53
  Threshold last;
  for (const Threshold& t : thresholds) {
    twice += static_cast<double>(t.wrong - last.wrong) * static_cast<double>(t.right + last.right);
    curve.points.push_back(
        {static_cast<double>(t.wrong) / zeros, static_cast<double>(t.right) / ones, t.score});
    last = t;
  }
  curve.area = twice / 2 / ones / zeros;
  return curve;
}

ScoreCurve PrecisionRecallOf(std::span<const double> scores, std::span<const uint8_t> positive) {
  ScoreCurve curve{{}, kNan};
  if (scores.empty() || HasNan(scores)) return curve;
  const std::vector<Threshold> thresholds = ThresholdsOf(scores, positive);
  const auto ones = static_cast<double>(thresholds.back().right);
  if (ones == 0) return curve;
  curve.area = 0;
  int64_t before = 0;
  for (const Threshold& t : thresholds) {
    const double precision = static_cast<double>(t.right) / static_cast<double>(t.right + t.wrong);
    curve.area += static_cast<double>(t.right - before) * precision;
    curve.points.push_back({static_cast<double>(t.right) / ones, precision, t.score});
    before = t.right;
  }
  curve.area /= ones;  // once, so that a perfect order has the area 1
  return curve;
}

std::vector<CurvePoint> ThinnedPoints(const std::vector<CurvePoint>& points, size_t most) {
  most = std::max<size_t>(most, 2);
  if (points.size() <= most) return points;
  std::vector<CurvePoint> thinned;
  for (size_t i = 0; i < most; ++i) thinned.push_back(points[i * (points.size() - 1) / (most - 1)]);
  return thinned;
}

CalibrationCurve CalibrationOf(std::span<const double> confidence, std::span<const uint8_t> right) {
  const bool defined =
      !confidence.empty() &&
      std::all_of(confidence.begin(), confidence.end(), [](double v) { return v >= 0 && v <= 1; });
  if (!defined) return {{}, kNan};
  CalibrationCurve curve;
  for (size_t b = 0; b < kBins; ++b) {
    curve.bins.push_back({static_cast<double>(b) / kBins, static_cast<double>(b + 1) / kBins});
  }
  for (size_t i = 0; i < confidence.size(); ++i) {
    size_t b = 0;
    while (b + 1 < kBins && confidence[i] > curve.bins[b].high) ++b;
    curve.bins[b].rows += 1;
    curve.bins[b].confidence += confidence[i];
    curve.bins[b].accuracy += right[i] ? 1 : 0;
  }
  for (CalibrationBin& bin : curve.bins) {
    curve.error += std::abs(bin.accuracy - bin.confidence);
    const double rows = bin.rows > 0 ? static_cast<double>(bin.rows) : kNan;
    bin.confidence /= rows;
    bin.accuracy /= rows;
  }
  curve.error /= static_cast<double>(confidence.size());
  return curve;
}

ResidualHistogram HistogramOf(std::span<const double> values, size_t bins) {
  double low = INFINITY, high = -INFINITY;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  if (low > high || bins == 0) return {};
  ResidualHistogram histogram{low, high, std::vector<int64_t>(low == high ? 1 : bins)};
  // Halves, so that the difference of the largest numbers is finite.
  const double width = high / 2 - low / 2;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    const double place = width > 0 ? (v / 2 - low / 2) / width : 0;
    const auto count = histogram.counts.size();
    const auto bin = static_cast<size_t>(place * static_cast<double>(count));
    histogram.counts[std::min(bin, count - 1)] += 1;
  }
  return histogram;
}

}  // namespace coracle::inline internal
