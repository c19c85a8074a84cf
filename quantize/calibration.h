#pragma once
// Calibration: runs the float program on sample data and records the values of its variables.

#include <coracle/executor/executor.h>
#include <coracle/quantize/float_model.h>
#include <coracle/quantize/layers.h>
#include <coracle/quantize/quantize.h>
#include <coracle/quantize/ranges.h>

#include <compare>
#include <map>
#include <string>
#include <vector>

namespace coracle::inline internal {

// The values of each channel of a variable. Channels are the indices of the axes [begin, end).
struct ChannelKey {
  std::string name;
  int begin = 0, end = 0;
  auto operator<=>(const ChannelKey&) const = default;
};
struct ChannelValues {
  std::vector<double> sum;        // empty if the number of channels differs between batches
  std::vector<double> magnitude;  // the largest absolute value
  uint64_t count = 0;             // values of one channel
  bool varies = false;

  double Mean(size_t channel) const { return sum[channel] / static_cast<double>(count); }
};

struct Calibration {
  std::map<std::string, ValueHistogram> histograms;
  std::map<ChannelKey, ChannelValues> channels;
  int64_t batches = 0;
};

// Runs all batches and records histograms of `names`, and the channels of the products' data.
// Memory does not depend on the number of batches. Throws kOutOfRange for a variable that becomes
// nan or infinite, kInvalidArgument without a batch.
Calibration Calibrate(const FloatModel& model, const std::vector<std::string>& names,
                      const std::vector<QuantLayer>& products, const CalibrationFeeds& feeds,
                      const CompileOptions& compile, const OpRegistry& ops);

// The channels that the product's layer reads; nullptr if they vary or were not recorded.
const ChannelValues* ChannelsOf(const Calibration& calibration, const QuantLayer& layer);

}  // namespace coracle::inline internal
