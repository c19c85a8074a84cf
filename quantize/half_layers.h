#pragma once
// Measures on samples what bfloat16 does to each layer of an inference program, and finds the
// layers that should stay in float32.

#include <coracle/quantize/quantize.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

struct HalfLayers {
  // Convolutions and products with a weight, in the order of the program; `quantized` ones compute
  // in bfloat16.
  std::vector<LayerReport> layers;
  // The outputs of the others, for CompileOptions::float32_vars.
  std::vector<std::string> in_float32;
};

// Rounds the operands of each layer, and the results of convolutions, to bfloat16, and compares the
// outputs with those in float32. A layer stays in float32 if its own signal-to-noise ratio is below
// `min_snr` (dB). Throws kInvalidArgument for a program that trains, is quantised or has no such
// layer, for samples without a batch, and the errors of Executor::Prepare and Run.
HalfLayers MeasureBFloat16(const ProgramDesc& program, const Scope& parameters,
                           const CalibrationFeeds& feeds, double min_snr,
                           const CompileOptions& compile, const OpRegistry& ops = DefaultOps());

}  // namespace coracle::inline internal
