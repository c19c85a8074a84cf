#include <coracle/framework/base/text.h>
#include <coracle/quantize/layer_parameters.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

// A bias of int32 keeps away from the ends, so that sums of products can be added to it.
constexpr double kMostBias = 1 << 30;

WeightFormat FormatOf(const LayerWeight& use, const Shape& weight, const QuantizeOptions& options) {
  WeightFormat format{options.weight_bits, use.axes.channel, 0};
  // Filters with few channels have too few values for blocks.
  if (options.weight_bits == 4 && weight[use.axes.reduced] > options.block_size) {
    format.axis = use.axes.reduced;
    format.block_size = options.block_size;
  }
  return format;
}

std::vector<double> ShiftOfConvolution(const OpDesc& op, const Tensor& weight,
                                       const Tensor& rounded, const ChannelValues& data) {
  const Shape& shape = weight.shape();
  const int64_t groups = op.GetAttr<int32_t>("groups", 1), inner = shape[2] * shape[3];
  if (groups < 1 || shape[0] % groups != 0 ||
      static_cast<int64_t>(data.sum.size()) != shape[1] * groups)
    return {};
  std::vector<double> shift(static_cast<size_t>(shape[0]));
  const float *w = weight.data<float>(), *r = rounded.data<float>();
  for (int64_t m = 0; m < shape[0]; ++m) {
    const int64_t first = m / (shape[0] / groups) * shape[1];
    for (int64_t c = 0; c < shape[1]; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < inner; ++i, ++w, ++r)
        sum += static_cast<double>(*r) - static_cast<double>(*w);
      shift[static_cast<size_t>(m)] += sum * data.Mean(static_cast<size_t>(first + c));
    }
  }
  return shift;
}

// W [K, N], or [N, K] if the last axis is the one that the product adds over.
std::vector<double> ShiftOfMatrix(const OpDesc& op, const LayerWeight& use, const Tensor& weight,
                                  const Tensor& rounded, const ChannelValues& data) {
  const Shape& shape = weight.shape();
  const bool k_first = use.axes.channel == shape.rank() - 1;
  const int64_t n = shape[use.axes.channel], k = weight.numel() / n;
  const auto alpha = static_cast<double>(op.GetAttr<float>("alpha", 1));
  if (static_cast<int64_t>(data.sum.size()) != k || (!k_first && shape.rank() != 2)) return {};
  std::vector<double> shift(static_cast<size_t>(n));
  const float *w = weight.data<float>(), *r = rounded.data<float>();
  for (int64_t i = 0; i < weight.numel(); ++i) {
    const int64_t row = k_first ? i / n : i % k, column = k_first ? i % n : i / k;
    const double error = alpha * (static_cast<double>(r[i]) - static_cast<double>(w[i]));
    shift[static_cast<size_t>(column)] += error * data.Mean(static_cast<size_t>(row));
  }
  return shift;
}

class ParameterMaker {
 public:
  ParameterMaker(const FloatModel& model, const std::vector<QuantLayer>& layers,
                 const std::map<std::string, std::string>& range_of, const ByteScales& scales,
                 const Calibration& calibration, const QuantizeOptions& options)
      : model_(model),
        layers_(layers),
        range_of_(range_of),
        scales_(scales),
        calibration_(calibration),
        options_(options) {}

  std::vector<LayerParameters> Run() {
    if (HasIntegerBiases()) FindLeastScales();
    std::vector<LayerParameters> result;
    for (const QuantLayer& layer : layers_) result.push_back(Make(layer));
    return result;
  }

 private:
  using WeightKey = std::pair<std::string, int>;  // name, channel axis

  bool HasIntegerBiases() const {
    return options_.scheme == QuantScheme::kStatic && options_.form == QuantForm::kOnnx &&
           options_.weight_bits == 8;
  }
  bool HasIntegerBias(const QuantLayer& layer) const {
    return HasIntegerBiases() && !layer.weight.empty() && IsConvolution(OpOf(layer));
  }
  const OpDesc& OpOf(const QuantLayer& layer) const {
    return model_.program.Root().op(layer.ops[0]);
  }
  static WeightKey KeyOf(const LayerWeight& use) { return {use.name, use.axes.channel}; }
  double DataScale(const QuantLayer& layer) const {
    return static_cast<double>(scales_.at(range_of_.at(layer.data[0])).scale);
  }

  // The scale of a weight must be at least |bias| / (scale of data * kMostBias).
  void FindLeastScales() {
    for (const QuantLayer& layer : layers_) {
      if (!HasIntegerBias(layer) || layer.bias.empty()) continue;
      std::vector<float>& least = least_scales_[KeyOf(layer.weight[0])];
      const std::span<const float> bias = model_.Weight(layer.bias)->span<float>();
      least.resize(bias.size());
      for (size_t c = 0; c < bias.size(); ++c) {
        const double needed =
            std::abs(static_cast<double>(bias[c])) / DataScale(layer) / kMostBias * 1.001;
        least[c] = std::max(least[c], static_cast<float>(needed));
      }
    }
  }

  const LayerParameters& WeightOf(const QuantLayer& layer) {
    const LayerWeight& use = layer.weight[0];
    const auto [it, added] = weights_.try_emplace(KeyOf(use));
    if (!added) return it->second;
    const Tensor& weight = *model_.Weight(use.name);
    const auto least = least_scales_.find(KeyOf(use));
    const WeightFormat format = FormatOf(use, weight.shape(), options_);
    try {
      it->second.weight = RoundWeight(
          weight, format,
          least == least_scales_.end() ? std::span<const float>() : std::span(least->second));
      if (HasLinearOps(options_) && HasOneScale(format)) ShareScale(weight, &*it->second.weight);
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("{}: {}", Quote(use.name), e.what()));
    }
    it->second.weight_name = use.name + (format.bits == 4 ? "@INT4" : "@INT8");
    for (const auto& [key, other] : weights_)  // the same weight along another axis
      if (key.first == use.name && key != KeyOf(use))
        it->second.weight_name += fmt::format("@AXIS{}", use.axes.channel);
    return it->second;
  }

  // Rounds again, with the largest scale for all channels.
  static void ShareScale(const Tensor& weight, IntegerWeight* rounded) {
    const std::span<const float> scales = rounded->scale.span<float>();
    const std::vector<float> largest(scales.size(),
                                     *std::max_element(scales.begin(), scales.end()));
    *rounded = RoundWeight(weight, rounded->format, largest);
  }

  LayerParameters Make(const QuantLayer& layer) {
    if (layer.weight.empty()) return {};
    LayerParameters made = WeightOf(layer);
    CorrectBias(layer, &made);
    if (HasIntegerBias(layer)) RoundBias(layer, &made);
    return made;
  }

  void CorrectBias(const QuantLayer& layer, LayerParameters* made) const {
    const ChannelValues* data = ChannelsOf(calibration_, layer);
    const OpDesc& op = OpOf(layer);
    const bool can_add = layer.bias.empty() && IsConvolution(op) && !op.HasInput("Bias");
    if (!options_.correct_bias || !data || (layer.bias.empty() && !can_add)) return;
    const Tensor& weight = *model_.Weight(layer.weight[0].name);
    const std::vector<double> shift =
        MeanShift(OpOf(layer), layer.weight[0], weight, FloatOf(*made->weight), *data);
    if (shift.empty()) return;
    const Tensor* old = layer.bias.empty() ? nullptr : model_.Weight(layer.bias);
    Tensor bias = old ? old->Clone() : Tensor::Zeros(DType::kFloat32, {layer.channels});
    float* b = bias.data<float>();
    for (size_t c = 0; c < shift.size(); ++c)
      b[c] = static_cast<float>(static_cast<double>(b[c]) - shift[c]);
    made->bias = std::move(bias);
  }

  void RoundBias(const QuantLayer& layer, LayerParameters* made) const {
    const Tensor* old = layer.bias.empty() ? nullptr : model_.Weight(layer.bias);
    const Tensor* bias = made->bias ? &*made->bias : old;
    if (!bias) return;
    const float* scales = made->weight->scale.data<float>();
    Tensor units(DType::kFloat32, {layer.channels}), integers(DType::kInt32, {layer.channels});
    auto* unit = units.data<float>();
    auto* integer = integers.data<int32_t>();
    const float* b = bias->data<float>();
    for (int64_t c = 0; c < layer.channels; ++c) {
      // In float32, as a reader of the file multiplies them.
      unit[c] = static_cast<float>(DataScale(layer)) * scales[c];
      if (unit[c] == 0) return;  // too small for float32: the bias stays a float
      const double q = std::nearbyint(static_cast<double>(b[c]) / static_cast<double>(unit[c]));
      if (std::abs(q) > 2 * kMostBias - 1) return;
      integer[c] = static_cast<int32_t>(q);
    }
    made->integer_bias = std::move(integers);
    made->bias_units = std::move(units);
  }

  const FloatModel& model_;
  const std::vector<QuantLayer>& layers_;
  const std::map<std::string, std::string>& range_of_;
  const ByteScales& scales_;
  const Calibration& calibration_;
  const QuantizeOptions& options_;
  std::map<WeightKey, LayerParameters> weights_;
  std::map<WeightKey, std::vector<float>> least_scales_;
};

}  // namespace

bool HasLinearOps(const QuantizeOptions& options) {
  return options.linear_ops && options.form == QuantForm::kPaddle &&
         options.scheme != QuantScheme::kDynamic && options.weight_bits == 8;
}

bool HasOneScale(const WeightFormat& format) { return format.axis > 1; }

std::vector<double> MeanShift(const OpDesc& op, const LayerWeight& use, const Tensor& weight,
                              const Tensor& rounded, const ChannelValues& data) {
  if (IsConvolution(op)) return ShiftOfConvolution(op, weight, rounded, data);
  // A transposed convolution adds another number of products for each pixel.
  if (IsTransposedConvolution(op) || use.slot != SlotsOfProduct(op).weight) return {};
  return ShiftOfMatrix(op, use, weight, rounded, data);
}

std::vector<LayerParameters> ParametersOfLayers(const FloatModel& model,
                                                const std::vector<QuantLayer>& layers,
                                                const std::map<std::string, std::string>& range_of,
                                                const ByteScales& scales,
                                                const Calibration& calibration,
                                                const QuantizeOptions& options) {
  return ParameterMaker(model, layers, range_of, scales, calibration, options).Run();
}

}  // namespace coracle::inline internal
