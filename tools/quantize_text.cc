#include <coracle/framework/base/text.h>
#include <coracle/tools/command.h>
#include <coracle/tools/quantize_text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::tools {
namespace {

std::string BytesOf(const LayerReport& layer) {
  if (layer.bytes_before == 0) return "";
  if (layer.bytes_before == layer.bytes_after) return HumanBytes(layer.bytes_before);
  return fmt::format("{} -> {}", HumanBytes(layer.bytes_before), HumanBytes(layer.bytes_after));
}

}  // namespace

std::string Decibels(double ratio) {
  if (std::isnan(ratio)) return "-";
  return std::isinf(ratio) ? "exact" : fmt::format("{:.1f} dB", ratio);
}

std::vector<std::string> WorstLayers(const QuantizedModel& model, size_t most) {
  std::vector<const LayerReport*> layers;
  for (const LayerReport& layer : model.layers)
    if (layer.quantized && layer.is_product && !std::isnan(layer.own)) layers.push_back(&layer);
  std::stable_sort(layers.begin(), layers.end(),
                   [](const LayerReport* a, const LayerReport* b) { return a->own < b->own; });
  if (most > 0 && layers.size() > most) layers.resize(most);
  std::vector<std::string> names;
  for (const LayerReport* layer : layers) names.push_back(layer->output);
  return names;
}

std::string TableOfLayers(const std::vector<LayerReport>& layers, const TextOfLayer& computes,
                          const TextOfLayer& weight) {
  size_t name = 5, type = 2;
  for (const LayerReport& layer : layers) {
    name = std::max(name, Shown(layer.output).size());
    type = std::max(type, layer.type.size());
  }
  std::string text = fmt::format("{:<{}}  {:<{}}  {:<9}{:>9}{:>11}  {}\n", "layer", name, "op",
                                 type, "computes", "own SNR", "total SNR", "weight");
  for (const LayerReport& layer : layers) {
    const std::string line = fmt::format(
        "{:<{}}  {:<{}}  {:<9}{:>9}{:>11}  {}", Shown(layer.output), name, layer.type, type,
        computes(layer), Decibels(layer.own), Decibels(layer.total), weight(layer));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string QuantizeTable(const QuantizedModel& model, int weight_bits, int activation_bits) {
  const std::string activations = activation_bits == 0 ? "" : fmt::format("a{}", activation_bits);
  const auto computes = [&](const LayerReport& layer) -> std::string {
    if (!layer.quantized) return "float";
    return layer.is_product ? fmt::format("w{}{}", weight_bits, activations) : "int8";
  };
  std::string text = TableOfLayers(model.layers, computes, BytesOf);
  uint64_t before = 0, after = 0;
  for (const LayerReport& layer : model.layers) {
    before += layer.bytes_before;
    after += layer.bytes_after;
  }
  std::vector<std::string> worst;
  for (const std::string& each : WorstLayers(model, 3)) {
    const auto layer = std::find_if(model.layers.begin(), model.layers.end(),
                                    [&](const LayerReport& l) { return l.output == each; });
    worst.push_back(fmt::format("{} ({})", Shown(each), Decibels(layer->own)));
  }
  if (!worst.empty()) text += fmt::format("lose most: {}\n", Join(worst, ", "));
  text += fmt::format("weights: {} -> {}\n", HumanBytes(before), HumanBytes(after));
  return text;
}

}  // namespace coracle::tools
