#pragma once
// Mixed precision: rewrites a forward program so that its heavy ops compute in float16 or bfloat16.
// The result is an ordinary program with `cast` ops. Call it before Minimize (gradients of casts
// give float32 gradients of float32 parameters). See docs/mixed_precision.md.
//
// Sources: Paddle 2.1's contrib/mixed_precision (lists, rewriting), apex (levels O0 to O3),
// PyTorch's autocast (ops that want float32).
//
// QuantizeForTraining goes further: it trains for inference in integers (docs/quantization.md).

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

inline namespace internal {
struct LossScaleRule;
struct LossScaleState;
}  // namespace internal

//                      O0   O1                    O2                       O3
// computes in 16 bits  -    white ops and ops     all but black ops        all
//                           that follow them
// parameters           f32  f32                   f32 (master weights)     16 bits
// norm statistics      f32  f32                   f32                      16 bits
// loss scale, float16  1    dynamic               dynamic                  1
// With master weights, a step makes one 16-bit copy of each parameter, for all its uses.
enum class PrecisionLevel { kO0, kO1, kO2, kO3 };

// Op types. White ops compute in 16 bits, black ones in float32. All others (including Paddle's
// gray list) follow their inputs: float32 if an input comes from a black op, else 16 bits if one
// comes from a white op, else unchanged.
struct PrecisionLists {
  std::set<std::string> white = {}, black = {};
};
// The lists declared by the ops (OpDef::ComputesIn): Paddle's lists, with more black ops, whose
// results need the range or precision of float32 (powers, logarithms, norms, losses).
PrecisionLists DefaultPrecisionLists(const OpRegistry& ops = DefaultOps());

struct MixedPrecisionOptions {
  DType dtype = DType::kBFloat16;  // or kFloat16
  PrecisionLevel level = PrecisionLevel::kO1;
  // Op types to move to the white or the black list. At O2 and O3 custom_black stays float32 too.
  std::vector<std::string> custom_white = {}, custom_black = {};
  // Ops that touch one of these variables compute in float32.
  std::vector<std::string> black_vars = {};
  // Variables that stay float32 (a loss, metrics, outputs): the results of their ops are
  // converted back.
  std::vector<std::string> float32_vars = {};
  // Override the level's choice at O2 and O3: whether parameters are float32, and whether scale,
  // bias and statistics of norms are (OpDef::Float32Slots).
  std::optional<bool> master_weights = {}, float32_norms = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct MixedPrecisionReport {
  int casts = 0;      // added ops
  int low_ops = 0;    // ops that compute in 16 bits
  int float_ops = 0;  // other ops with float32 inputs
};

// Rewrites `main` including its sub-blocks, and also `startup` for 16-bit parameters. Each value is
// converted at most once: all readers share the result, including those in loops. Variables that
// are written more than once, or that are inputs or outputs of a sub-block, keep their dtype.
//
// Throws kInvalidArgument for any other dtype, an op type in both custom lists, an option that
// contradicts the level, and a program that already has gradient or update ops; kNotFound for an
// unknown op type or variable. `main` is then unchanged.
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
// Semantics and names of torch.amp.GradScaler, with these differences: a step is also skipped if a
// gradient became infinite or a nan after Unscale (by a clip), or by the division itself; growth
// and backoff stay within max_scale and min_scale; there is hysteresis; and max_skipped stops a run
// that has no usable scale.

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int32_t growth_interval = 2000;
  // If not 0, the scale backs off at this many overflows since the last growth (consecutive or
  // not), and at each overflow after that.
  int32_t hysteresis = 0;
  double min_scale = 1;
  double max_scale = 3.4028234663852886e38;
  // The number of consecutive steps with overflow at min_scale after which the run stops; 0: never.
  int32_t max_skipped = 20;
  bool dynamic = true;
  // If false, Scale changes nothing, Step always steps, and the other functions do nothing.
  bool enabled = true;
};

// Throws kInvalidArgument for factors, intervals and bounds out of range (growth_factor > 1, 0
// < backoff_factor < 1, growth_interval >= 1, 0 <= min_scale <= init_scale <= max_scale),
// naming them. For Coracle's own code: only the tree has LossScaleRule.
LossScaleRule LossScaleRuleOf(const GradScalerOptions& options);

class GradScaler {
 public:
  using State = std::map<std::string, double>;

  // Throws like LossScaleRuleOf.
  explicit GradScaler(const GradScalerOptions& options = {});

  // value * scale, in value's floating-point dtype (a float16 beyond its range becomes infinite).
  Tensor Scale(const Tensor& value);
  // Divides the gradients by the scale, in place, and records whether all are finite.
  // Gradients must be float32 or float64, since dividing float16 would lose the precision that
  // scaling preserves.
  void Unscale(const std::string& optimizer, const std::vector<Tensor*>& gradients);
  // Calls Unscale if that was not done, then step() unless a gradient is not finite. Returns
  // whether step() was called. Does not affect other optimizers.
  bool Step(const std::string& optimizer, const std::vector<Tensor*>& gradients,
            const std::function<void()>& step);
  // Ends a step: adjusts the scale once, even if the gradients of several optimizers were not
  // finite. Throws kOutOfRange if no usable scale is left.
  void Update();
  // Sets the scale instead; the count of good steps is kept.
  void Update(double new_scale);

  double scale() const { return options_.enabled ? double{scale_} : 1; }
  const GradScalerOptions& options() const { return options_; }
  void SetGrowthFactor(double factor);  // checked as in the constructor
  void SetBackoffFactor(double factor);
  void SetGrowthInterval(int32_t steps);

  // All state that a resumed run needs; {} if disabled. Call it after Update(). LoadState throws
  // kInvalidArgument for {} and for a state in which a number is missing or out of range.
  State SaveState() const;
  void LoadState(const State& state);

  // Unscale, Step and Update throw kInvalidArgument if called out of order: before any Scale,
  // Unscale twice or after Step, Step twice, or Update before any gradient was checked.

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
  // The fields of a LossScaleState (operators/update/loss_scale.h).
  float scale_ = 65536;
  int32_t good_steps_ = 0, bad_steps_ = 0, skipped_ = 0;
  bool scaled_ = false;
  std::map<std::string, PerOptimizer> optimizers_;
};

// Loss scaling inside a program: the loss is multiplied by a persistable scale before backward, the
// gradients are divided by it and checked, updates run only if all are finite, and the scale is
// adjusted, all by ordinary ops. See docs/mixed_precision.md; GradScaler does the same for loops
// that hold gradients on the host.
//
//   LossScaling scaling(main, startup, {.growth_interval = 1000});
//   scaling.Minimize(optimizer, loss, startup);
//
// With several optimizers, or with accumulation, pass it to a TrainingStep, whose stages call
// Scale, ErrorClip, Unscale, CheckAgain and Update in this order.

class LossScaling {
 public:
  // Makes the state, persistable in both programs: the scale (float32 [1]) and its counts (int32
  // [1]). Throws like LossScaleRuleOf. One object serves one program.
  LossScaling(ProgramDesc& main, ProgramDesc& startup, const GradScalerOptions& options = {});

  // Does everything for one optimizer: scales the loss, appends backward, and appends the rest to
  // the loss's block.
  std::vector<ParamAndGrad> Minimize(Optimizer& optimizer, const Variable& loss,
                                     ProgramDesc& startup, const MinimizeOptions& options = {});

  // loss * scale in float32, the value to differentiate.
  Variable Scale(const Variable& loss);
  // Replaces ErrorClipCallback: every error clip acts on the scaled gradient as it would on the
  // true one. Its input is checked first, since clipping would make an overflow finite. `count`
  // counts the effect of the clips, see CountErrorClip.
  BackwardCallback ErrorClip(bool count = false);
  // Appends to `block` ops that divide the gradients in place and check them. Returns the name of
  // a bool [1] variable, the guard of their optimizer: whether all of them, and all gradients
  // that entered error clips, are finite. Throws kInvalidArgument if there are no gradients, and
  // if disabled.
  std::string Unscale(BlockDesc& block, const std::vector<ParamAndGrad>& pairs);
  // Checks the gradients of the last Unscale again after clips have changed them, since a clip may
  // have made one infinite. Returns another guard. Throws kInvalidArgument before any Unscale.
  std::string CheckAgain(BlockDesc& block, const std::vector<ParamAndGrad>& clipped);
  // Appends the op that changes the scale, for all optimizers together, to `block`, the block
  // of Unscale. Call it last; throws kInvalidArgument if no gradient was checked.
  void Update(BlockDesc& block);

  bool enabled() const { return options_.enabled; }
  const std::string& scale_var() const { return scale_; }
  // Names the variable with the number of consecutive skipped steps.
  const std::string& skipped_var() const { return skipped_; }

 private:
  friend class StepUndo;
  GradScalerOptions options_;
  ProgramDesc& startup_;
  std::string scale_, good_steps_, bad_steps_, skipped_;
  // A persistable variable: whether all gradients that entered error clips since the last Update
  // were finite. "" without error clips.
  std::string entering_finite_;
  std::vector<std::string> overflows_;  // bool [1]: the result of each Unscale
};

// Quantisation-aware training: convolutions and matrix products read operands that were rounded as
// in an inference in integers, and gradients pass the rounding straight through.
//
//   QuantizeForTraining(main, startup, {.weight_bits = 4});
//   optimizer.Minimize(loss, startup);
//   executor.Run(ProgramOfPhase(main, QuantizePhase::kObserve), ...);  // some steps
//   executor.Run(main, ...);                                           // the other steps
//   QuantizedInference int8 = InferInIntegers(main, scope, {"image"}, {"prob"});
//
// Source: PaddleSlim's static QAT (fake_quantize_dequantize ops, scales), LSQ for learned steps.

struct QuantizeTrainingOptions {
  int32_t weight_bits = 8, activation_bits = 8;  // 2 to 8
  // Steps of weights and activations are parameters that the optimizer trains (LSQ). Otherwise the
  // step of a channel of a weight comes from its largest absolute value, and the one of an
  // activation from a moving average of such values.
  bool learned_step = false;
  double moving_rate = 0.9;  // weight of the old average, at least 0 and below 1
  // A regular expression (RE2). A product stays in floating point if it matches part of the name of
  // its weight, or of its output, also after bias, norm and activation. "": none does.
  std::string exclude = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct QuantizeTrainingReport {
  std::vector<std::string> products;  // their outputs
  // Parameters made for learned steps; neither decay nor patterns of names should apply to them.
  std::vector<std::string> learned_steps;
};

// Inserts ops that round before the products of the root block, of float32 activations and
// parameters. A variable or parameter is rounded once for all its products. Makes the state of the
// ranges, persistable in both programs: NAME@RANGE, NAME@RANGE_SUM and NAME@RANGE_COUNT for the
// activation NAME, and parameters NAME@STEP for learned steps.
//
// Call it before Minimize, and before DecorateMixedPrecision. Throws kInvalidArgument, and changes
// nothing, for options out of range, for a program with gradient or update ops or rounding, and if
// there is no product to quantise.
QuantizeTrainingReport QuantizeForTraining(ProgramDesc& main, ProgramDesc& startup,
                                           const QuantizeTrainingOptions& options = {});

// The phases of training share all variables, so a run may change the phase between steps.
enum class QuantizePhase {
  kObserve,   // computes in floating point, and observes the ranges of activations
  kQuantize,  // rounds; the program that QuantizeForTraining made
  kFreeze,    // rounds; neither ranges nor the statistics of norms change, and norms use them
};
// A copy for a phase of a program made by QuantizeForTraining, with or without gradients, updates
// and 16-bit floats.
ProgramDesc ProgramOfPhase(const ProgramDesc& program, QuantizePhase phase,
                           const OpRegistry& ops = DefaultOps());
// A program that gives learned steps their first values, from weights and observed ranges. Run it
// once, after some steps of kObserve. It is empty without learned steps.
ProgramDesc InitializeLearnedSteps(const ProgramDesc& program,
                                   const OpRegistry& ops = DefaultOps());

struct QuantizedInference {
  ProgramDesc program;  // without feed and fetch ops
  Scope parameters;
};
// Makes an inference program of 8-bit integers (affine_quantize and affine_dequantize, the form
// of `coracle quantize`) from a trained program and its values. It computes what the trained
// program computes in a test, apart from the rounding of single values between two integers;
// batch_norm is folded exactly. Throws kInvalidArgument if no op rounds, kOutOfRange for a weight
// or a range that is not finite, and the errors of ProgramDesc::Prune.
QuantizedInference InferInIntegers(const ProgramDesc& program, const Scope& parameters,
                                   const std::vector<std::string>& feeds,
                                   const std::vector<std::string>& fetches,
                                   const OpRegistry& ops = DefaultOps());

}  // namespace coracle
