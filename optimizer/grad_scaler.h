#pragma once
// GradScaler: dynamic loss scaling on the host, for training loops that hold gradients as tensors
// (fetched from a program, or computed by the caller). Programs that update their own parameters
// use LossScaling instead; both follow one rule.
//
//   GradScaler scaler;
//   feed scaler.Scale(one) as the loss's gradient, fetch the gradients;
//   scaler.Unscale("sgd", grads);            // optional: where they are clipped
//   scaler.Step("sgd", grads, [&] { ... });  // updates, unless a gradient is not finite
//   scaler.Update();
//
// Semantics and names of torch.amp.GradScaler, but for: a step is skipped too when a gradient
// became infinite or a nan after Unscale (by a clip), or by the division itself; growth and backoff
// stay within max_scale and min_scale; hysteresis; max_skipped stops a run that has no usable
// scale.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/update/loss_scale.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace coracle {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int32_t growth_interval = 2000;
  int32_t hysteresis = 0;  // see LossScaleRule
  double min_scale = 1;
  double max_scale = 3.4028234663852886e38;
  int32_t max_skipped = 20;  // see LossScaleRule
  bool dynamic = true;
  bool enabled = true;  // false: Scale changes nothing, Step always steps, the rest does nothing
};

// Throws kInvalidArgument for factors, intervals and bounds out of range (growth_factor > 1, 0 <
// backoff_factor < 1, growth_interval >= 1, 0 <= min_scale <= init_scale <= max_scale), naming
// them.
LossScaleRule LossScaleRuleOf(const GradScalerOptions& options);

class GradScaler {
 public:
  using State = std::map<std::string, double>;

  // Throws as LossScaleRuleOf.
  explicit GradScaler(const GradScalerOptions& options = {});

  // value * scale, of value's floating-point dtype (a float16 beyond its range becomes infinite).
  Tensor Scale(const Tensor& value);
  // Divides the gradients by the scale, in place, and notes whether all are finite. Gradients are
  // float32 or float64: dividing float16 would lose what scaling has saved.
  void Unscale(const std::string& optimizer, const std::vector<Tensor*>& gradients);
  // Unscale, if that was not done, then step() unless a gradient is not finite. Returns whether
  // step() was called. Other optimizers are not concerned.
  bool Step(const std::string& optimizer, const std::vector<Tensor*>& gradients,
            const std::function<void()>& step);
  // Ends a step: moves the scale once, whatever the number of optimizers whose gradients were not
  // finite. Throws kOutOfRange when no usable scale is left.
  void Update();
  // Sets the scale instead; the count of clean steps stays.
  void Update(double new_scale);

  double scale() const { return options_.enabled ? double{state_.scale} : 1; }
  const GradScalerOptions& options() const { return options_; }
  void SetGrowthFactor(double factor);  // checked as in the constructor
  void SetBackoffFactor(double factor);
  void SetGrowthInterval(int32_t steps);

  // All that a resumed run needs; {} when disabled. Take it after Update(). LoadState throws
  // kInvalidArgument for {} and for a state that lacks a number or holds one out of range.
  State SaveState() const;
  void LoadState(const State& state);

  // Unscale, Step and Update throw kInvalidArgument out of their order: before any Scale, Unscale
  // twice or after Step, Step twice, Update without a gradient that was looked at.

 private:
  enum class Stage { kReady, kUnscaled, kStepped };
  struct PerOptimizer {
    Stage stage = Stage::kReady;
    bool overflow = false;
  };
  void Set(const GradScalerOptions& options);
  void RequireScaled(const char* call) const;
  void DivideAndCheck(PerOptimizer* optimizer, const std::string& name,
                      const std::vector<Tensor*>& gradients);

  GradScalerOptions options_;
  LossScaleRule rule_;
  LossScaleState state_;
  bool scaled_ = false;
  std::map<std::string, PerOptimizer> optimizers_;
};

}  // namespace coracle
