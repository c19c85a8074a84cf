#include <coracle/train/job/job_parts.h>
#include <fmt/format.h>

namespace coracle {
namespace {

GradScalerOptions ToScaling(const proto::LossScalingConfig& scaling, const JobNode& at) {
  constexpr double kMost = 3.4e38;
  GradScalerOptions options;
  options.enabled = scaling.enabled();
  options.dynamic = scaling.dynamic();
  options.init_scale = scaling.init_scale();
  options.growth_factor = scaling.growth_factor();
  options.backoff_factor = scaling.backoff_factor();
  options.growth_interval = scaling.growth_interval();
  options.hysteresis = scaling.hysteresis();
  options.min_scale = scaling.min_scale();
  if (scaling.has_max_scale()) options.max_scale = scaling.max_scale();
  options.max_skipped = scaling.max_skipped();
  const auto open = [&](const char* field, double value, double low, double high) {
    if (value > low && value < high) return;
    at.Fail(field, fmt::format("must lie between {:g} and {:g}, both excluded, got {:g}", low, high,
                               value));
  };
  open("growth_factor", options.growth_factor, 1, kMost);
  open("backoff_factor", options.backoff_factor, 0, 1);
  open("init_scale", options.init_scale, 0, kMost);
  at.AtLeast("growth_interval", options.growth_interval, 1);
  at.AtLeast("hysteresis", options.hysteresis, 0);
  at.AtLeast("max_skipped", options.max_skipped, 0);
  at.InRange("min_scale", options.min_scale, 0, kMost);
  if (scaling.has_max_scale()) at.InRange("max_scale", options.max_scale, 0, kMost);
  if (!options.dynamic) return options;
  if (options.min_scale > options.init_scale)
    at.Fail(at.Has("min_scale") ? "min_scale" : "init_scale",
            fmt::format("min_scale {:g} is above init_scale {:g}", options.min_scale,
                        options.init_scale));
  if (options.max_scale < options.init_scale)
    at.Fail("max_scale",
            fmt::format("{:g} is below init_scale {:g}", options.max_scale, options.init_scale));
  return options;
}

}  // namespace

PrecisionConfig ToPrecision(const proto::MixedPrecisionConfig& precision, const JobNode& at) {
  PrecisionConfig config;
  MixedPrecisionOptions& options = config.options;
  const bool half = precision.dtype() == proto::MixedPrecisionConfig::FLOAT16;
  options.dtype = half ? DType::kFloat16 : DType::kBFloat16;
  options.level = static_cast<PrecisionLevel>(precision.level());
  options.custom_white.assign(precision.custom_white().begin(), precision.custom_white().end());
  options.custom_black.assign(precision.custom_black().begin(), precision.custom_black().end());
  options.black_vars.assign(precision.black_var().begin(), precision.black_var().end());
  options.float32_vars.assign(precision.float32_var().begin(), precision.float32_var().end());
  if (precision.has_master_weights()) options.master_weights = precision.master_weights();
  if (precision.has_float32_norms()) options.float32_norms = precision.float32_norms();
  for (const char* field : {"master_weights", "float32_norms"}) {
    if (at.Has(field) && options.level <= PrecisionLevel::kO1)
      at.Fail(field, "applies to the levels O2 and O3; below, parameters are float32");
  }
  const bool small = options.level == PrecisionLevel::kO1 || options.level == PrecisionLevel::kO2;
  if (precision.has_loss_scaling()) {
    const auto& scaling = precision.loss_scaling();
    config.scaling = ToScaling(scaling, at.Sub("loss_scaling", scaling).At(at, "loss_scaling"));
  } else if (half && small) {
    config.scaling = GradScalerOptions();
  }
  return config;
}

}  // namespace coracle
