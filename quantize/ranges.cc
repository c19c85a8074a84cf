#include <coracle/quantize/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::inline internal {
namespace {

constexpr int kSide = ValueHistogram::kBinsOfSide;

// --- percentile ---

// The smallest number of bins of width `width`, counted from 0, that hold all of `bins` but `rest`.
double EdgeWithout(const std::vector<double>& bins, double rest, double width) {
  double beyond = 0;
  size_t end = bins.size();
  while (end > 0 && beyond + bins[end - 1] <= rest) beyond += bins[--end];
  return static_cast<double>(end) * width;
}

// The bins of one side, from 0 outwards.
std::vector<double> Side(const ValueHistogram& values, bool positive) {
  std::vector<double> side(kSide);
  for (int i = 0; i < kSide; ++i)
    side[static_cast<size_t>(i)] =
        values.bins()[static_cast<size_t>(positive ? kSide + i : kSide - 1 - i)];
  return side;
}

std::vector<double> Magnitudes(const ValueHistogram& values) {
  std::vector<double> sum = Side(values, true);
  const std::vector<double> negative = Side(values, false);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += negative[i];
  return sum;
}

ValueRange Symmetric(double threshold) { return {-threshold, threshold}; }

// The range with these thresholds, without parts that no value reaches.
ValueRange Within(const ValueHistogram& values, const ValueRange& range) {
  return {std::max(range.low, std::min(values.min(), 0.0)),
          std::min(range.high, std::max(values.max(), 0.0))};
}

ValueRange PercentileRange(const ValueHistogram& values, double percentile, ByteForm form) {
  // Zeros do not count: after relu they may be all values but a share smaller than `percentile`
  // leaves out. A share such as 1 - 0.999 is not exact; a count that is a whole number up to
  // rounding is meant.
  const auto count = static_cast<double>(values.count() - values.zeros());
  const double rest = (1 - percentile) * count + 1e-6;
  const double width = values.BinWidth();
  if (form == ByteForm::kInt8) return Symmetric(EdgeWithout(Magnitudes(values), rest, width));
  const ValueRange range = {-EdgeWithout(Side(values, false), rest, width),
                            EdgeWithout(Side(values, true), rest, width)};
  // Rounding of the share may leave out both halves of few values.
  return range.low == 0 && range.high == 0 ? ValueRange{values.min(), values.max()} : range;
}

// --- entropy ---

// sum p log(p / q) of distributions that need not be normalised; infinite if q lacks a bin of p.
double Divergence(const std::vector<double>& p, const std::vector<double>& q) {
  double sum_p = 0, sum_q = 0, divergence = 0;
  for (const double x : p) sum_p += x;
  for (const double x : q) sum_q += x;
  if (sum_q <= 0) return std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    if (q[i] == 0) return std::numeric_limits<double>::infinity();
    divergence += p[i] / sum_p * std::log(p[i] / sum_p * sum_q / q[i]);
  }
  return divergence;
}

// The bins joined to `levels` and spread evenly over those that are not empty in `p`.
std::vector<double> JoinedAndSpread(const std::vector<double>& bins, const std::vector<double>& p,
                                    size_t levels) {
  std::vector<double> spread(bins.size());
  for (size_t level = 0; level < levels; ++level) {
    const size_t begin = level * bins.size() / levels, end = (level + 1) * bins.size() / levels;
    double sum = 0, filled = 0;
    for (size_t i = begin; i < end; ++i) {
      sum += bins[i];
      filled += p[i] > 0;
    }
    for (size_t i = begin; i < end; ++i)
      if (p[i] > 0) spread[i] = sum / filled;
  }
  return spread;
}

// Number of bins below the threshold with the smallest divergence.
size_t EntropyBins(const std::vector<double>& bins, size_t levels) {
  size_t used = bins.size();
  while (used > 0 && bins[used - 1] == 0) --used;
  if (used <= levels) return used;
  size_t best = used;
  double least = std::numeric_limits<double>::infinity();
  const size_t step = std::max<size_t>(1, (used - levels) / 512);
  for (size_t end = used;; end -= step) {
    std::vector<double> inside(bins.begin(), bins.begin() + static_cast<ptrdiff_t>(end));
    std::vector<double> p = inside;
    for (size_t i = end; i < used; ++i) p.back() += bins[i];
    const double divergence = Divergence(p, JoinedAndSpread(inside, p, levels));
    if (divergence < least) {
      least = divergence;
      best = end;
    }
    if (end < levels + step) return best;
  }
}

ValueRange EntropyRange(const ValueHistogram& values, ByteForm form) {
  const bool one_sign = values.min() >= 0 || values.max() <= 0;
  const size_t levels = form == ByteForm::kUint8 && one_sign ? 256 : 128;
  const size_t bins = EntropyBins(Magnitudes(values), levels);
  return Symmetric(static_cast<double>(bins) * values.BinWidth());
}

// --- mean squared error ---

double SquaredError(const ValueHistogram& values, const ValueRange& range, ByteForm form) {
  const ByteScale bytes = ScaleOfRange(range, form);
  const double scale = static_cast<double>(bytes.scale), zero = bytes.zero_point;
  const double least = form == ByteForm::kInt8 ? -127 : 0,
               most = form == ByteForm::kInt8 ? 127 : 255;
  double sum = 0;
  for (int i = 0; i < 2 * kSide; ++i) {
    const double weight = values.bins()[static_cast<size_t>(i)];
    if (weight == 0) continue;
    const double x = values.Centre(i);
    const double q = std::clamp(std::nearbyint(x / scale) + zero, least, most);
    const double error = scale * (q - zero) - x;
    sum += weight * error * error;
  }
  return sum;
}

// The share of `whole` with the smallest error of make(share).
template <class MakeRange>
double BestShare(const ValueHistogram& values, ByteForm form, const MakeRange& make) {
  double best = 1, least = std::numeric_limits<double>::infinity();
  for (int percent = 100; percent >= 20; --percent) {
    const double error = SquaredError(values, make(percent / 100.0), form);
    if (error < least) {
      least = error;
      best = percent / 100.0;
    }
  }
  return best;
}

ValueRange MseRange(const ValueHistogram& values, ByteForm form) {
  const double magnitude = values.Magnitude();
  if (form == ByteForm::kInt8) {
    return Symmetric(magnitude *
                     BestShare(values, form, [&](double s) { return Symmetric(magnitude * s); }));
  }
  const double low = std::min(values.min(), 0.0), high = std::max(values.max(), 0.0);
  double low_share = 1, high_share = 1;
  for (int round = 0; round < 2; ++round) {
    high_share = BestShare(values, form, [&](double s) {
      return ValueRange{low * low_share, high * s};
    });
    if (low == 0) break;
    low_share = BestShare(values, form, [&](double s) {
      return ValueRange{low * s, high * high_share};
    });
  }
  return {low * low_share, high * high_share};
}

}  // namespace

double ValueHistogram::Magnitude() const { return std::max(std::abs(min_), std::abs(max_)); }

void ValueHistogram::Cover(double magnitude) {
  if (bins_.empty()) bins_.resize(2 * kBinsOfSide);
  if (magnitude <= limit_) return;
  if (limit_ == 0) {
    limit_ = std::exp2(std::ceil(std::log2(magnitude)));
    return;
  }
  while (limit_ < magnitude) {
    limit_ *= 2;
    std::vector<double> joined(bins_.size());
    for (int i = 0; i < 2 * kBinsOfSide; ++i)
      joined[static_cast<size_t>(kBinsOfSide / 2 + i / 2)] += bins_[static_cast<size_t>(i)];
    bins_ = std::move(joined);
  }
}

bool ValueHistogram::Add(std::span<const float> values) {
  if (values.empty()) return true;
  float low = values[0], high = values[0];
  bool finite = true;
  for (const float x : values) {
    finite &= std::isfinite(x);
    low = std::min(low, x);
    high = std::max(high, x);
  }
  if (!finite) return false;
  min_ = count_ == 0 ? static_cast<double>(low) : std::min(min_, static_cast<double>(low));
  max_ = count_ == 0 ? static_cast<double>(high) : std::max(max_, static_cast<double>(high));
  count_ += values.size();
  Cover(Magnitude());
  if (limit_ == 0) {
    zeros_ += values.size();
    return true;
  }
  const double bins_of_one = kBinsOfSide / limit_;
  for (const float x : values) {
    if (x == 0) {
      ++zeros_;
      continue;
    }
    const double place = std::floor(static_cast<double>(x) * bins_of_one) + kBinsOfSide;
    ++bins_[static_cast<size_t>(std::clamp(place, 0.0, 2.0 * kBinsOfSide - 1))];
  }
  return true;
}

ValueRange ChooseRange(const ValueHistogram& values, RangeMethod method, double percentile,
                       ByteForm form) {
  if (values.limit() == 0) return {};
  switch (method) {
    case RangeMethod::kMinMax:
      return {std::min(values.min(), 0.0), std::max(values.max(), 0.0)};
    case RangeMethod::kPercentile:
      return Within(values, PercentileRange(values, percentile, form));
    case RangeMethod::kEntropy:
      return Within(values, EntropyRange(values, form));
    case RangeMethod::kMse:
      return Within(values, MseRange(values, form));
  }
  return {};
}

ByteScale ScaleOfRange(const ValueRange& range, ByteForm form) {
  const double low = std::min(range.low, 0.0), high = std::max(range.high, 0.0);
  const double span = form == ByteForm::kInt8 ? std::max(-low, high) / 127 : (high - low) / 255;
  const auto scale = static_cast<float>(span);
  // A subnormal scale would lose digits, and some processors take it for 0.
  if (scale < std::numeric_limits<float>::min()) return {};
  if (form == ByteForm::kInt8) return {scale, 0};
  const double zero = std::nearbyint(-low / static_cast<double>(scale));
  return {scale, static_cast<int32_t>(std::clamp(zero, 0.0, 255.0))};
}

}  // namespace coracle::inline internal
