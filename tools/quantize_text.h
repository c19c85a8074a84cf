#pragma once
// What `coracle quantize` prints.

#include <coracle/quantize/quantize.h>

#include <string>
#include <vector>

namespace coracle::tools {

// A table with a line for each layer: its output, its op, its bits, the two ratios, and the bytes
// of its weight; then the layers that lose most and the size of all weights.
std::string QuantizeTable(const QuantizedModel& model, int weight_bits, int activation_bits);

// The quantised layers, those with the lowest own ratio first; at most `most` (0: all).
std::vector<std::string> WorstLayers(const QuantizedModel& model, size_t most);

// "41.2 dB"; "exact" for an infinite ratio, "-" for a nan.
std::string Decibels(double ratio);

}  // namespace coracle::tools
