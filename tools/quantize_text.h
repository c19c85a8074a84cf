#pragma once
// What `coracle quantize` prints.

#include <coracle/quantize/quantize.h>

#include <functional>
#include <string>
#include <vector>

namespace coracle::tools {

using TextOfLayer = std::function<std::string(const LayerReport&)>;
// A table with a line for each layer: its output, its op, what it computes in, the two ratios, and
// the bytes of its weight.
std::string TableOfLayers(const std::vector<LayerReport>& layers, const TextOfLayer& computes,
                          const TextOfLayer& weight);
// The same for a quantised model; then the layers that lose most and the size of all weights.
std::string QuantizeTable(const QuantizedModel& model, int weight_bits, int activation_bits);

// The quantised layers, those with the lowest own ratio first; at most `most` (0: all).
std::vector<std::string> WorstLayers(const QuantizedModel& model, size_t most);

// "41.2 dB"; "exact" for an infinite ratio, "-" for a nan.
std::string Decibels(double ratio);

}  // namespace coracle::tools
