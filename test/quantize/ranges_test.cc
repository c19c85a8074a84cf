// Histograms, and the ranges that each method chooses, against written-out formulas.

#include <coracle/quantize/ranges.h>
#include <coracle/test/quantize/quantize_programs.h>

#include <algorithm>
#include <limits>

namespace coracle::ranges_test {

constexpr int kSide = ValueHistogram::kBinsOfSide;

// Normally distributed values; `shift` makes them one-sided.
std::vector<float> Normal(size_t n, double mean, double deviation, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<float> values(n);
  for (float& x : values) x = static_cast<float>(normal(engine));
  return values;
}

TEST(ValueHistogram, CountsAsIfItsLimitWereKnownFromTheBeginning) {
  ValueHistogram grown;
  std::vector<float> all;
  for (const double scale : {0.001, 1.0, 37.0, 0.2}) {
    const std::vector<float> values = Normal(1000, 0, scale, 7);
    ASSERT_TRUE(grown.Add(values));
    all.insert(all.end(), values.begin(), values.end());
  }
  all.push_back(0);
  ASSERT_TRUE(grown.Add(std::vector<float>{0}));
  const auto [low, high] = std::minmax_element(all.begin(), all.end());
  EXPECT_EQ(grown.min(), static_cast<double>(*low));
  EXPECT_EQ(grown.max(), static_cast<double>(*high));
  EXPECT_EQ(grown.count(), all.size());
  EXPECT_EQ(grown.zeros(), 1u);
  EXPECT_GE(grown.limit(), grown.Magnitude());
  EXPECT_LT(grown.limit(), 2 * grown.Magnitude());
  std::vector<double> bins(2 * kSide);
  for (const float x : all) {
    if (x == 0) continue;
    ++bins[static_cast<size_t>(std::floor(static_cast<double>(x) / grown.BinWidth()) + kSide)];
  }
  EXPECT_EQ(grown.bins(), bins);
}

TEST(ValueHistogram, RefusesNanAndInfinityAndAddsNothing) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    ValueHistogram values;
    EXPECT_FALSE(values.Add(std::vector<float>{1, bad, 2}));
    EXPECT_EQ(values.count(), 0u);
  }
}

TEST(ValueHistogram, HoldsTheLargestAndSmallestNumbers) {
  ValueHistogram values;
  const float most = std::numeric_limits<float>::max();
  EXPECT_TRUE(values.Add(std::vector<float>{most, -most}));
  EXPECT_EQ(values.bins().front() + values.bins().back(), 2);
  ValueHistogram tiny;
  EXPECT_TRUE(tiny.Add(std::vector<float>{std::numeric_limits<float>::denorm_min()}));
  EXPECT_EQ(tiny.count(), 1u);
  EXPECT_EQ(
      ScaleOfRange(ChooseRange(tiny, RangeMethod::kMse, 1, ByteForm::kUint8), ByteForm::kUint8)
          .scale,
      1);
}

ValueHistogram HistogramOf(const std::vector<float>& values) {
  ValueHistogram histogram;
  EXPECT_TRUE(histogram.Add(values));
  return histogram;
}

TEST(ChooseRange, OfNoValueOrOnlyZerosIsEmpty) {
  for (const RangeMethod method :
       {RangeMethod::kMinMax, RangeMethod::kPercentile, RangeMethod::kEntropy, RangeMethod::kMse}) {
    for (const ByteForm form : {ByteForm::kUint8, ByteForm::kInt8}) {
      for (const std::vector<float>& values : {std::vector<float>{}, std::vector<float>{0, 0, 0}}) {
        const ValueRange range = ChooseRange(HistogramOf(values), method, 0.99, form);
        EXPECT_EQ(range.low, 0);
        EXPECT_EQ(range.high, 0);
        EXPECT_EQ(ScaleOfRange(range, form).scale, 1);
        EXPECT_EQ(ScaleOfRange(range, form).zero_point, 0);
      }
    }
  }
}

TEST(ChooseRange, MinMaxContainsZero) {
  const ValueRange up = ChooseRange(HistogramOf({2, 3}), RangeMethod::kMinMax, 1, ByteForm::kUint8);
  EXPECT_EQ(up.low, 0);
  EXPECT_EQ(up.high, 3);
  const ValueRange down =
      ChooseRange(HistogramOf({-2, -3}), RangeMethod::kMinMax, 1, ByteForm::kUint8);
  EXPECT_EQ(down.low, -3);
  EXPECT_EQ(down.high, 0);
}

// After relu, fewer values than the share that is left out may be other than 0.
TEST(ChooseRange, PercentileOfSparseValuesIsNotEmpty) {
  std::vector<float> values(100000);
  for (size_t i = 0; i < 5; ++i) values[i * 1000] = static_cast<float>(i + 1);
  for (const float sign : {1.0f, -1.0f}) {
    ValueHistogram histogram;
    ASSERT_TRUE(histogram.Add(values));
    for (const ByteForm form : {ByteForm::kUint8, ByteForm::kInt8}) {
      const ValueRange range = ChooseRange(histogram, RangeMethod::kPercentile, 0.9999, form);
      EXPECT_EQ(std::max(-range.low, range.high), 5) << static_cast<double>(sign);
    }
    for (float& x : values) x = -x;
  }
  ValueHistogram two;
  ASSERT_TRUE(two.Add(std::vector<float>{0, 3, -2}));
  const ValueRange range = ChooseRange(two, RangeMethod::kPercentile, 0.5000001, ByteForm::kUint8);
  EXPECT_EQ(range.low, -2);
  EXPECT_EQ(range.high, 3);
}

TEST(ChooseRange, PercentileLeavesOutThatShareAtEachEnd) {
  std::vector<float> values;
  for (int i = 1; i <= 1000; ++i) values.push_back(static_cast<float>(i));
  for (int i = 1; i <= 1000; ++i) values.push_back(static_cast<float>(-i) / 10);
  const ValueHistogram histogram = HistogramOf(values);
  const double width = histogram.BinWidth();
  const ValueRange range = ChooseRange(histogram, RangeMethod::kPercentile, 0.99, ByteForm::kUint8);
  EXPECT_NEAR(range.high, 980, width);  // 20 of 2000 values are larger
  EXPECT_NEAR(range.low, -98, width);
  const ValueRange both = ChooseRange(histogram, RangeMethod::kPercentile, 0.99, ByteForm::kInt8);
  EXPECT_NEAR(both.high, 980, width);
  const ValueRange all = ChooseRange(histogram, RangeMethod::kPercentile, 1, ByteForm::kUint8);
  EXPECT_EQ(all.high, 1000);
  EXPECT_EQ(all.low, -100);
}

// Mean squared error of the values themselves, not of their bins.
double ErrorOf(const std::vector<float>& values, const ValueRange& range, ByteForm form) {
  const ByteScale bytes = ScaleOfRange(range, form);
  const double low = form == ByteForm::kInt8 ? -127 : 0, high = form == ByteForm::kInt8 ? 127 : 255;
  double sum = 0;
  for (const float x : values) {
    double q = std::nearbyint(static_cast<double>(x) / static_cast<double>(bytes.scale)) +
               bytes.zero_point;
    q = std::min(std::max(q, low), high);
    const double y = static_cast<double>(bytes.scale) * (q - bytes.zero_point);
    sum += (y - static_cast<double>(x)) * (y - static_cast<double>(x));
  }
  return sum;
}

TEST(ChooseRange, MseIsAsGoodAsTheBestThresholdOfTheGrid) {
  for (const double mean : {0.0, 3.0}) {
    std::vector<float> values = Normal(5000, mean, 1, 11);
    values.push_back(40);
    const ValueHistogram histogram = HistogramOf(values);
    for (const ByteForm form : {ByteForm::kUint8, ByteForm::kInt8}) {
      const double got = ErrorOf(values, ChooseRange(histogram, RangeMethod::kMse, 1, form), form);
      double best = std::numeric_limits<double>::infinity();
      for (int i = 20; i <= 100; ++i) {
        const double low = form == ByteForm::kInt8 ? -40 : histogram.min();
        best = std::min(
            best,
            ErrorOf(values, {low * (form == ByteForm::kInt8 ? i / 100.0 : 1), 0.4 * i}, form));
      }
      EXPECT_LE(got, best * 1.02) << mean;
      EXPECT_LT(got, ErrorOf(values, {-40, 40}, form));
    }
  }
}

// The divergence of a threshold, written out: see ChooseRange.
double DivergenceOf(const std::vector<double>& bins, size_t end, size_t levels) {
  std::vector<double> p(bins.begin(), bins.begin() + static_cast<ptrdiff_t>(end)), q(end);
  for (size_t i = end; i < bins.size(); ++i) p[end - 1] += bins[i];
  for (size_t level = 0; level < levels; ++level) {
    const size_t from = level * end / levels, to = (level + 1) * end / levels;
    double sum = 0;
    int filled = 0;
    for (size_t i = from; i < to; ++i) {
      sum += bins[i];
      if (p[i] > 0) ++filled;
    }
    for (size_t i = from; i < to; ++i)
      if (p[i] > 0) q[i] = sum / filled;
  }
  double total_p = 0, total_q = 0, divergence = 0;
  for (size_t i = 0; i < end; ++i) {
    total_p += p[i];
    total_q += q[i];
  }
  for (size_t i = 0; i < end; ++i) {
    if (p[i] == 0) continue;
    if (q[i] == 0) return std::numeric_limits<double>::infinity();
    divergence += p[i] / total_p * std::log((p[i] / total_p) / (q[i] / total_q));
  }
  return divergence;
}

TEST(ChooseRange, EntropyHasTheSmallestDivergence) {
  std::vector<float> values = Normal(20000, 0, 1, 3);
  values.push_back(30);  // an outlier
  const ValueHistogram histogram = HistogramOf(values);
  std::vector<double> magnitudes(kSide);
  for (size_t i = 0; i < kSide; ++i)
    magnitudes[i] = histogram.bins()[kSide + i] + histogram.bins()[kSide - 1 - i];
  while (magnitudes.back() == 0) magnitudes.pop_back();
  const ValueRange range = ChooseRange(histogram, RangeMethod::kEntropy, 1, ByteForm::kInt8);
  const auto end = static_cast<size_t>(std::lround(range.high / histogram.BinWidth()));
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 128; i <= magnitudes.size(); ++i)
    least = std::min(least, DivergenceOf(magnitudes, i, 128));
  EXPECT_LE(DivergenceOf(magnitudes, end, 128), 1.15 * least);
  EXPECT_LT(range.high, 15);
  EXPECT_GT(range.high, 2);
}

TEST(ScaleOfRange, FollowsTheFormulas) {
  const ByteScale up = ScaleOfRange({0, 25.5}, ByteForm::kUint8);
  EXPECT_FLOAT_EQ(up.scale, 0.1f);
  EXPECT_EQ(up.zero_point, 0);
  const ByteScale both = ScaleOfRange({-1, 1.55}, ByteForm::kUint8);
  EXPECT_FLOAT_EQ(both.scale, 0.01f);
  EXPECT_EQ(both.zero_point, 100);
  const ByteScale down = ScaleOfRange({-25.5, 0}, ByteForm::kUint8);
  EXPECT_EQ(down.zero_point, 255);
  const ByteScale symmetric = ScaleOfRange({-12.7, 3}, ByteForm::kInt8);
  EXPECT_FLOAT_EQ(symmetric.scale, 0.1f);
  EXPECT_EQ(symmetric.zero_point, 0);
  const double most = static_cast<double>(std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(ScaleOfRange({-most, most}, ByteForm::kUint8).scale));
}

}  // namespace coracle::ranges_test
