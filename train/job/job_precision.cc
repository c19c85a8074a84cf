#include <coracle/optimizer/option_fields.h>
#include <coracle/train/job/job_parts.h>
#include <fmt/format.h>

namespace coracle {
namespace {

GradScalerOptions ToScaling(const JobNode& at) {
  const GradScalerOptions options = at.Read(FieldsOf(GradScalerOptions()));
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
  if (at.Has("loss_scaling")) {
    config.scaling = ToScaling(at.Child("loss_scaling"));
  } else if (half && small) {
    config.scaling = GradScalerOptions();
  }
  return config;
}

}  // namespace coracle
