#pragma once
// The integers of layers: rounded weights, and biases that make up for the rounding.

#include <coracle/quantize/calibration.h>
#include <coracle/quantize/weights.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Scales by the variable whose range they cover.
using ByteScales = std::map<std::string, ByteScale>;

struct LayerParameters {
  std::optional<IntegerWeight> weight;  // layers that share a weight have the same
  std::string weight_name;              // new; equal for the same weight
  // The new bias [channels] in float32; empty if the layer's bias stays as it is.
  std::optional<Tensor> bias;
  // If not empty: the bias as int32 in units of scale of data * scale of weight, and these units.
  std::optional<Tensor> integer_bias, bias_units;
};

// Whether the program has Paddle's quantize_linear and dequantize_linear.
bool HasLinearOps(const QuantizeOptions& options);
// Whether the channels of a weight share a scale with these ops: Paddle knows only the axes 0
// and 1.
bool HasOneScale(const WeightFormat& format);

// Computes them for all layers, in their order. `calibration` may lack channels: then the bias is
// not corrected. With integer biases, a scale of the weight is raised where the bias would not fit
// in int32. Throws kOutOfRange for a weight that is nan or infinite.
std::vector<LayerParameters> ParametersOfLayers(const FloatModel& model,
                                                const std::vector<QuantLayer>& layers,
                                                const std::map<std::string, std::string>& range_of,
                                                const ByteScales& scales,
                                                const Calibration& calibration,
                                                const QuantizeOptions& options);

// By how much the mean of each output channel grows if `weight` is replaced by `rounded`, for data
// with these means of its channels; empty if the shapes are not those of a plain product.
std::vector<double> MeanShift(const OpDesc& op, const LayerWeight& use, const Tensor& weight,
                              const Tensor& rounded, const ChannelValues& data);

}  // namespace coracle::inline internal
