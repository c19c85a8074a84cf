#pragma once
// Mixed precision: rewrites a forward program so that its heavy ops compute in float16 or bfloat16.
// The result is an ordinary program with `cast` ops; call before Minimize (gradients of casts give
// float32 gradients of float32 parameters). See docs/mixed_precision.md.
//
// Sources: Paddle 2.1's contrib/mixed_precision (lists, rewriting), apex (levels O0 to O3),
// PyTorch's autocast (ops that want float32).

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/optimizer.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace coracle {

struct LossScaleRule;
struct LossScaleState;

//                      O0   O1                    O2                       O3
// computes in 16 bits  -    white ops and what    all but black ops        all
//                           follows them
// parameters           f32  f32                   f32 (master weights)     16 bits
// norm statistics      f32  f32                   f32                      16 bits
// loss scale, float16  1    dynamic               dynamic                  1
// With master weights a step makes one 16-bit copy of each parameter, for all its uses.
enum class PrecisionLevel { kO0, kO1, kO2, kO3 };

PrecisionLevel ParsePrecisionLevel(const std::string& text);  // "O1"; throws kInvalidArgument

// Op types. White ops compute in 16 bits; black ones in float32. All others (Paddle's gray list
// among them) follow their inputs: float32 where one comes from a black op, else 16 bits where one
// comes from a white op, else they stay as they are.
struct PrecisionLists {
  std::set<std::string> white = {}, black = {};
};
// What the declarations of ops say (OpDef::ComputesIn): Paddle's lists, and to the black ones more
// ops whose results need float32's range or precision (powers, logarithms, norms, losses).
PrecisionLists DefaultPrecisionLists(const OpRegistry& ops = DefaultOps());

struct MixedPrecisionOptions {
  DType dtype = DType::kBFloat16;  // or kFloat16
  PrecisionLevel level = PrecisionLevel::kO1;
  // Op types to move to the white or the black list. At O2 and O3 custom_black stays float32 too.
  std::vector<std::string> custom_white = {}, custom_black = {};
  // Ops that touch one of these variables compute in float32.
  std::vector<std::string> black_vars = {};
  // Variables that keep float32 (a loss, metrics, outputs): what computes them is converted back.
  std::vector<std::string> float32_vars = {};
  // Override the level's choice for O2 and O3: whether parameters are float32, and whether scale,
  // bias and statistics of norms are (OpDef::Float32Slots).
  std::optional<bool> master_weights = {}, float32_norms = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct MixedPrecisionReport {
  int casts = 0;      // ops that were added
  int low_ops = 0;    // ops that compute in 16 bits
  int float_ops = 0;  // ops with float32 inputs that do not
};

// Rewrites `main`, its sub-blocks included, and for parameters of 16 bits `startup`. Each value is
// converted at most once: the result is shared by all readers, those in loops included. Variables
// that are written more than once, or that a sub-block takes or gives, keep their dtype.
//
// Throws kInvalidArgument for a dtype other than the two, an op type in both custom lists, an
// option that contradicts the level, and a program that has gradient or update ops already;
// kNotFound for an unknown op type or variable. `main` is unchanged then.
MixedPrecisionReport DecorateMixedPrecision(ProgramDesc& main, ProgramDesc& startup,
                                            const MixedPrecisionOptions& options = {});

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
// became infinite or a nan after Unscale (by a clip), or by the division itself; growth and
// backoff stay within max_scale and min_scale; hysteresis; max_skipped stops a run that has
// no usable scale.

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

// Throws kInvalidArgument for factors, intervals and bounds out of range (growth_factor >
// 1, 0 < backoff_factor < 1, growth_interval >= 1, 0 <= min_scale <= init_scale <=
// max_scale), naming them.
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

  double scale() const { return options_.enabled ? double{scale_} : 1; }
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
  void SetState(const LossScaleState& state);
  void RequireScaled(const char* call) const;
  void DivideAndCheck(PerOptimizer* optimizer, const std::string& name,
                      const std::vector<Tensor*>& gradients);

  GradScalerOptions options_;
  // What a LossScaleState holds (operators/update/loss_scale.h).
  float scale_ = 65536;
  int32_t good_steps_ = 0, bad_steps_ = 0, skipped_ = 0;
  bool scaled_ = false;
  std::map<std::string, PerOptimizer> optimizers_;
};

// Loss scaling inside a program: the loss is multiplied by a persistable scale before backward, the
// gradients are divided by it and looked at, updates run only where all are finite, and the scale
// moves, all by ordinary ops. See docs/mixed_precision.md; GradScaler is the same for loops that
// hold gradients on the host.
//
//   LossScaling scaling(main, startup, {.growth_interval = 1000});
//   scaling.Minimize(optimizer, loss, startup);
//
// For several optimizers, or with accumulation, give it to a TrainingStep, whose stages call Scale,
// ErrorClip, Unscale, CheckAgain and Update in this order.

class LossScaling {
 public:
  // Makes the state, persistable in both programs: the scale (float32 [1]) and its counts (int32
  // [1]). Throws as LossScaleRuleOf. One object serves one program.
  LossScaling(ProgramDesc& main, ProgramDesc& startup, const GradScalerOptions& options = {});

  // All of it for one optimizer: scales the loss, appends backward, and the rest to
  // the loss's block.
  std::vector<ParamAndGrad> Minimize(Optimizer& optimizer, const Variable& loss,
                                     ProgramDesc& startup, const MinimizeOptions& options = {});

  // loss * scale, in float32: what to differentiate.
  Variable Scale(const Variable& loss);
  // Replaces ErrorClipCallback: every error clip acts on the scaled gradient as it would on the
  // true one. Its input is checked first, since clipping would make an overflow finite. `count`
  // counts what the clips do, see CountErrorClip.
  BackwardCallback ErrorClip(bool count = false);
  // Appends to `block` ops that divide the gradients in place and check them. Returns the name of a
  // bool [1] variable, the guard of their optimizer: whether all of them, and all gradients that
  // entered error clips, are finite. Throws kInvalidArgument for no gradients, and when disabled.
  std::string Unscale(BlockDesc& block, const std::vector<ParamAndGrad>& pairs);
  // Checks the gradients of the last Unscale again after clips have changed them, since a clip may
  // have made one infinite. Returns another guard. Throws kInvalidArgument before any Unscale.
  std::string CheckAgain(BlockDesc& block, const std::vector<ParamAndGrad>& clipped);
  // Appends to `block`, the one of Unscale, the op that changes the scale, for all optimizers
  // together. Call last; throws kInvalidArgument when no gradient was checked.
  void Update(BlockDesc& block);

  bool enabled() const { return options_.enabled; }
  const std::string& scale_var() const { return scale_; }
  const std::string& skipped_var() const { return skipped_; }  // steps skipped in a row

 private:
  friend class StepUndo;
  GradScalerOptions options_;
  ProgramDesc& startup_;
  std::string scale_, good_steps_, bad_steps_, skipped_;
  // Persistable: whether all gradients that entered error clips since the last Update were finite.
  // "" without error clips.
  std::string entering_finite_;
  std::vector<std::string> overflows_;  // bool [1]: what each Unscale found
};

}  // namespace coracle
