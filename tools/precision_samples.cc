#include <coracle/framework/base/text.h>
#include <coracle/quantize/half_layers.h>
#include <coracle/tools/calibration_data.h>
#include <coracle/tools/command.h>
#include <coracle/tools/precision_samples.h>
#include <coracle/tools/quantize_text.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

std::string TableOf(const HalfLayers& measured, double min_snr) {
  std::string text = TableOfLayers(
      measured.layers,
      [](const LayerReport& layer) { return layer.quantized ? "bfloat16" : "float32"; },
      [](const LayerReport& layer) { return HumanBytes(layer.bytes_before); });
  if (!measured.in_float32.empty()) {
    text += fmt::format(
        "{} of {} layers stay in float32, because bfloat16 leaves less than {:g} "
        "dB\n",
        measured.in_float32.size(), measured.layers.size(), min_snr);
  }
  return text;
}

}  // namespace

Fields<PrecisionSamples> PrecisionSampleFields() {
  return Fields<PrecisionSamples>("")
      .Add("feed", &PrecisionSamples::feed,
           "`FILES` with samples (.npz, .npy, ...), on which --precision=bfloat16 measures what "
           "each "
           "layer loses")
      .Add("samples", &PrecisionSamples::samples, "at most `N` rows of the samples",
           LimitedRange(1, int64_t{1} << 40))
      .Add("min_snr", &PrecisionSamples::min_snr,
           "a layer whose result has a lower signal-to-noise ratio in `DECIBELS` stays in float32 "
           "(default: 30)");
}

std::string KeepLayersInFloat32(const PrecisionSamples& flags, const ProgramDesc& program,
                                const Scope& parameters, CompileOptions* options) {
  if (flags.feed.empty()) return "";
  const double min_snr = flags.min_snr.value_or(kMinSnr);
  CompileOptions in_float32 = *options;
  in_float32.precision = DType::kFloat32;
  in_float32.float32_vars.clear();
  const HalfLayers measured = MeasureBFloat16(
      program, parameters, SamplesOfFiles(flags.feed, program, flags.samples), min_snr, in_float32);
  for (const std::string& name : measured.in_float32)
    if (program.Root().FindVar(name)) options->float32_vars.push_back(name);
  return TableOf(measured, min_snr);
}

}  // namespace coracle::tools
