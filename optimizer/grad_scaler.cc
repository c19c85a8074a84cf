#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/update/loss_scale.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/option_fields.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle {
namespace {

void Require(bool holds, const char* what, double got) {
  if (!holds) ThrowInvalid(fmt::format("loss scaling: {}, got {}", what, got));
}

template <class T>
bool Multiply(Tensor* tensor, T factor) {
  bool finite = true;
  for (T& value : tensor->span<T>()) {
    if (factor != 1) value *= factor;
    finite &= std::isfinite(value);
  }
  return finite;
}

bool MultiplyAny(Tensor* tensor, float factor) {
  return tensor->dtype() == DType::kFloat64 ? Multiply<double>(tensor, double{factor})
                                            : Multiply<float>(tensor, factor);
}

void CheckGradients(const std::string& name, const std::vector<Tensor*>& gradients) {
  for (const Tensor* gradient : gradients) {
    if (!gradient)
      ThrowInvalid(fmt::format("GradScaler: a gradient of {} is a null pointer", Quote(name)));
    const DType dtype = gradient->dtype();
    if (dtype == DType::kFloat32 || dtype == DType::kFloat64) continue;
    ThrowInvalid(
        fmt::format("GradScaler: the gradients of {} must be float32 or float64 to be "
                    "unscaled, got {}; cast them first",
                    Quote(name), gradient->ToString()));
  }
}

[[noreturn]] void ThrowOrder(const char* call, const std::string& optimizer, const char* what) {
  ThrowInvalid(
      fmt::format("GradScaler: {}({}) {} since the last Update()", call, Quote(optimizer), what));
}

}  // namespace

Fields<GradScalerOptions> internal::FieldsOf(const GradScalerOptions&) {
  using O = GradScalerOptions;
  constexpr double kMost = std::numeric_limits<float>::max();
  const FieldRange positive = {0, kMost, true, false, "must be positive and finite"};
  const FieldRange above_one = {1, kMost, true, false,
                                fmt::format("must be above 1 and at most {:g}", kMost)};
  const FieldRange share = {0, 1, true, true, "must lie between 0 and 1, both excluded"};
  const auto at_least = [](int32_t low) {
    return FieldRange{double(low), HUGE_VAL, false, true, fmt::format("must be at least {}", low)};
  };
  const FieldRange scale = {0, kMost, false, false, fmt::format("must be in [0, {:g}]", kMost)};
  return Fields<O>(
             "The loss is multiplied by a scale before backward, and the gradients divided by "
             "it. A step whose gradients are not finite is skipped and lowers the scale.")
      .Add("enabled", &O::enabled, "false: the loss is not scaled, and no step is skipped")
      .Add("dynamic", &O::dynamic,
           "false: the scale stays init_scale; steps are skipped all the same")
      .Add("init_scale", &O::init_scale, "the scale of the first step", positive)
      .Add("growth_factor", &O::growth_factor, "multiplies the scale when it grows", above_one)
      .Add("backoff_factor", &O::backoff_factor, "multiplies the scale after an overflow", share)
      .Add("growth_interval", &O::growth_interval, "clean steps before a growth", at_least(1))
      .Add("hysteresis", &O::hysteresis,
           "if not 0, the number of overflows before the first backoff after a growth", at_least(0))
      .Add("min_scale", &O::min_scale, "lower limit of the scale; dividing by less can overflow",
           scale)
      .Add("max_scale", &O::max_scale, "upper limit of the scale", scale)
      .Add("max_skipped", &O::max_skipped,
           "skipped steps in a row at min_scale that end the run with an error; 0: never",
           at_least(0));
}

namespace {

LossScaleRule RuleOf(const GradScalerOptions& o) {
  LossScaleRule rule;
  rule.growth_factor = o.growth_factor;
  rule.backoff_factor = o.backoff_factor;
  rule.growth_interval = o.growth_interval;
  rule.hysteresis = o.hysteresis;
  rule.min_scale = static_cast<float>(o.dynamic ? o.min_scale : o.init_scale);
  rule.max_scale = static_cast<float>(o.dynamic ? o.max_scale : o.init_scale);
  rule.max_skipped = o.max_skipped;
  return rule;
}

}  // namespace

LossScaleRule LossScaleRuleOf(const GradScalerOptions& o) {
  FieldsOf(o).Check("loss scaling", o);
  if (o.dynamic && !(o.min_scale <= o.init_scale && o.init_scale <= o.max_scale)) {
    ThrowInvalid(
        fmt::format("loss scaling: min_scale <= init_scale <= max_scale must hold, got {}, "
                    "{} and {}",
                    o.min_scale, o.init_scale, o.max_scale));
  }
  return RuleOf(o);
}

GradScaler::GradScaler(const GradScalerOptions& options) {
  Set(options);
  scale_ = static_cast<float>(options.init_scale);
}

void GradScaler::Set(const GradScalerOptions& options) {
  LossScaleRuleOf(options);
  options_ = options;
}

void GradScaler::SetState(const LossScaleState& state) {
  scale_ = state.scale;
  good_steps_ = state.good_steps;
  bad_steps_ = state.bad_steps;
  skipped_ = state.skipped;
}

void GradScaler::SetGrowthFactor(double factor) {
  GradScalerOptions options = options_;
  options.growth_factor = factor;
  Set(options);
}
void GradScaler::SetBackoffFactor(double factor) {
  GradScalerOptions options = options_;
  options.backoff_factor = factor;
  Set(options);
}
void GradScaler::SetGrowthInterval(int32_t steps) {
  GradScalerOptions options = options_;
  options.growth_interval = steps;
  Set(options);
}

Tensor GradScaler::Scale(const Tensor& value) {
  if (!IsFloating(value.dtype())) {
    ThrowInvalid(
        fmt::format("GradScaler: Scale() takes a floating-point tensor, got {}", value.ToString()));
  }
  if (!options_.enabled) return value;
  scaled_ = true;
  const bool wide = value.dtype() == DType::kFloat64;
  Tensor result = value.Cast(wide ? DType::kFloat64 : DType::kFloat32);
  if (result.raw() == value.raw()) result = value.Clone();
  MultiplyAny(&result, scale_);
  return result.dtype() == value.dtype() ? result : result.Cast(value.dtype());
}

void GradScaler::RequireScaled(const char* call) const {
  if (scaled_) return;
  ThrowInvalid(fmt::format("GradScaler: {} before any Scale(): there is nothing to unscale", call));
}

void GradScaler::DivideAndCheck(PerOptimizer* optimizer, const std::string& name,
                                const std::vector<Tensor*>& gradients) {
  CheckGradients(name, gradients);
  const float inverse = static_cast<float>(1 / double{scale_});
  for (Tensor* gradient : gradients) optimizer->overflow |= !MultiplyAny(gradient, inverse);
  optimizer->stage = Stage::kUnscaled;
}

void GradScaler::Unscale(const std::string& name, const std::vector<Tensor*>& gradients) {
  if (!options_.enabled) return;
  RequireScaled("Unscale()");
  PerOptimizer& optimizer = optimizers_[name];
  if (optimizer.stage == Stage::kUnscaled) ThrowOrder("Unscale", name, "has been called already");
  if (optimizer.stage == Stage::kStepped) ThrowOrder("Unscale", name, "is called after Step()");
  if (gradients.empty()) optimizers_.erase(name);
  if (!gradients.empty()) DivideAndCheck(&optimizer, name, gradients);
}

bool GradScaler::Step(const std::string& name, const std::vector<Tensor*>& gradients,
                      const std::function<void()>& step) {
  RequireFunction(step, fmt::format("GradScaler: the step of {}", Quote(name)));
  if (!options_.enabled) {
    step();
    return true;
  }
  RequireScaled("Step()");
  if (gradients.empty()) {
    ThrowInvalid(fmt::format(
        "GradScaler: Step({}) has no gradients, so it cannot find an overflow; pass them",
        Quote(name)));
  }
  PerOptimizer& optimizer = optimizers_[name];
  if (optimizer.stage == Stage::kStepped) ThrowOrder("Step", name, "has been called already");
  if (optimizer.stage == Stage::kReady) {
    DivideAndCheck(&optimizer, name, gradients);
  } else {
    // Code between Unscale and Step may have made gradients infinite.
    CheckGradients(name, gradients);
    for (Tensor* gradient : gradients) optimizer.overflow |= !MultiplyAny(gradient, 1);
  }
  optimizer.stage = Stage::kStepped;
  if (optimizer.overflow) return false;
  step();
  return true;
}

void GradScaler::Update() {
  if (!options_.enabled) return;
  RequireScaled("Update()");
  if (optimizers_.empty())
    ThrowInvalid(
        "GradScaler: Update() without Unscale() or Step() since the last one: no overflow "
        "was looked for");
  bool overflow = false;
  for (const auto& [name, optimizer] : optimizers_) overflow |= optimizer.overflow;
  optimizers_.clear();
  const LossScaleRule rule = RuleOf(options_);
  const LossScaleState next =
      NextLossScale(rule, {scale_, good_steps_, bad_steps_, skipped_}, overflow);
  SetState(next);
  RequireUsableScale(rule, next, "GradScaler");
}

void GradScaler::Update(double new_scale) {
  if (!options_.enabled) return;
  RequireScaled("Update()");
  Require(new_scale >= options_.min_scale && new_scale <= options_.max_scale && new_scale > 0,
          "the new scale must be positive and lie in [min_scale, max_scale]", new_scale);
  optimizers_.clear();
  scale_ = static_cast<float>(new_scale);
}

GradScaler::State GradScaler::SaveState() const {
  if (!options_.enabled) return {};
  return {{"scale", scale_},
          {"growth_factor", options_.growth_factor},
          {"backoff_factor", options_.backoff_factor},
          {"growth_interval", options_.growth_interval},
          {"good_steps", good_steps_},
          {"bad_steps", bad_steps_},
          {"skipped", skipped_}};
}

void GradScaler::LoadState(const State& state) {
  if (!options_.enabled) return;
  const auto get = [&](const char* name) {
    auto it = state.find(name);
    if (it != state.end()) return it->second;
    ThrowInvalid(fmt::format("GradScaler: the state to load has no {}{}", name,
                             state.empty() ? "; was it saved by a disabled one?" : ""));
  };
  const auto count = [&](const char* name) {
    const double value = get(name);
    Require(value >= 0 && value <= 2147483647.0 && value == std::floor(value),
            fmt::format("{} must be a count", name).c_str(), value);
    return static_cast<int32_t>(value);
  };
  GradScalerOptions options = options_;
  options.growth_factor = get("growth_factor");
  options.backoff_factor = get("backoff_factor");
  options.growth_interval = count("growth_interval");
  LossScaleState loaded;
  loaded.scale = static_cast<float>(get("scale"));
  Require(loaded.scale >= 0 && std::isfinite(loaded.scale), "the scale must be finite",
          loaded.scale);
  loaded.good_steps = count("good_steps");
  loaded.bad_steps = count("bad_steps");
  loaded.skipped = count("skipped");
  Set(options);
  SetState(loaded);
  optimizers_.clear();
}

}  // namespace coracle
