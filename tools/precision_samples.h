#pragma once
// Samples on which `coracle opt --precision=bfloat16` measures layers.

#include <coracle/executor/executor.h>
#include <coracle/framework/ir/program.h>
#include <coracle/tools/flag_table.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::tools {

// A layer whose own ratio is lower stays in float32. Rounding to 8 bits of precision alone leaves
// about 50 dB; where 30 dB are left, cancellation has taken three more of the 8 bits.
inline constexpr double kMinSnr = 30;

struct PrecisionSamples {
  std::vector<std::string> feed = {};
  int64_t samples = 256;
  std::optional<double> min_snr = {};
};
Fields<PrecisionSamples> PrecisionSampleFields();

// Measures the layers of the program on the samples, and lets those that lose too much compute in
// float32 (CompileOptions::float32_vars). Returns a table of the layers; "" without samples. Throws
// the errors of MeasureBFloat16 and of reading the files.
std::string KeepLayersInFloat32(const PrecisionSamples& flags, const ProgramDesc& program,
                                const Scope& parameters, CompileOptions* options);

}  // namespace coracle::tools
