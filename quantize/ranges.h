#pragma once
// Ranges of values for quantised numbers: a histogram of the values that a tensor takes, the
// methods that choose a range from it, and the scale and zero point of a range.

#include <coracle/edit/edit.h>

#include <cstdint>
#include <span>
#include <vector>

namespace coracle::inline internal {

// A histogram of any number of values in constant memory. Its bins have one width and cover
// [-limit, limit]; a value beyond the limit doubles it, which joins bins in pairs.
class ValueHistogram {
 public:
  static constexpr int kBinsOfSide = 4096;  // for negative values, and for positive ones

  // Returns false, and adds nothing, if a value is nan or infinite.
  bool Add(std::span<const float> values);

  uint64_t count() const { return count_; }
  double min() const { return min_; }  // 0 without values
  double max() const { return max_; }
  double Magnitude() const;  // the largest absolute value

  double limit() const { return limit_; }  // 0 if all values are 0
  double BinWidth() const { return limit_ / kBinsOfSide; }
  // The centre of a bin, 0 <= bin < 2 * kBinsOfSide.
  double Centre(int bin) const { return (bin - kBinsOfSide + 0.5) * BinWidth(); }
  // Zeros are not in the bins: every range represents them exactly.
  const std::vector<double>& bins() const { return bins_; }
  uint64_t zeros() const { return zeros_; }

 private:
  void Cover(double magnitude);

  uint64_t count_ = 0, zeros_ = 0;
  double min_ = 0, max_ = 0, limit_ = 0;
  std::vector<double> bins_;
};

struct ValueRange {
  double low = 0, high = 0;  // low <= 0 <= high
};

// How a range becomes 8 bits.
enum class ByteForm {
  kUint8,  // asymmetric: 0 to 255 with a zero point
  kInt8,   // symmetric: -127 to 127 with the zero point 0
};

// Chooses a range that contains 0 by a RangeMethod (edit/edit.h). `percentile` is a share between 0
// and 1.
//
// * kPercentile: high is the smallest edge of a bin so that a share of at least `percentile` of the
//   values other than 0 is below it, and low is the same at the other end. Symmetric: of absolute
//   values. Zeros do not count, because an activation may be 0 almost everywhere.
// * kEntropy: P is the histogram of absolute values up to a threshold, with all values beyond in
//   its last bin; Q is P without these, joined to the levels of 8 bits (128, or 256 for uint8
//   values of one sign) and spread evenly over the bins of P that are not empty. The threshold
//   minimises sum P log(P / Q).
// * kMse: thresholds of 20% to 100% of the extremes in steps of 1%, each end for itself.
ValueRange ChooseRange(const ValueHistogram& values, RangeMethod method, double percentile,
                       ByteForm form);

struct ByteScale {
  float scale = 1;
  int32_t zero_point = 0;
};

// kInt8: scale = max(-low, high) / 127. kUint8: scale = (high - low) / 255, zero_point =
// round(-low / scale). An empty range, and one that float32 cannot divide, has the scale 1.
ByteScale ScaleOfRange(const ValueRange& range, ByteForm form);

}  // namespace coracle::inline internal
