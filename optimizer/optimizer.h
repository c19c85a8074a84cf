#pragma once
// Optimizers: append the ops of a training step to a program.

#include <coracle/backward/backward.h>
#include <coracle/framework/ir/fields.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/writer.h>
#include <coracle/optimizer/lr_schedule.h>
#include <coracle/regularizer/regularizer.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

namespace coracle {

class LossScaling;
class WeightAverage;
inline namespace internal {
struct StepState;
struct StepStage;
const std::vector<StepStage>& TrainingStages();
}  // namespace internal

struct MinimizeOptions {
  std::vector<std::string> parameter_list = {};
  std::vector<std::string> no_grad_set = {};
  const OpRegistry* ops = nullptr;
  RecomputeOptions recompute = {};
};

// Selects by name the parameters that decay; empty: all.
using DecayFilter = std::function<bool(const std::string& param)>;

// Base of all optimizers. Derive from it and append your update in AppendUpdate. One object serves
// one program.
//
// Gradients may be selected rows (of an embedding with is_sparse). Sgd, Adagrad, and Adam with
// lazy_mode then update only the rows that were read; Momentum and Adam update all rows, as without
// a sparse gradient. None of these makes a dense gradient. A regularizer acts on all rows, so it
// makes the gradient dense.
class Optimizer {
 public:
  // Throws kInvalidArgument for a learning rate that is negative or not finite.
  explicit Optimizer(double learning_rate);
  virtual ~Optimizer() = default;

  // Appends backward with error clips, then one update op per parameter (role Optimize), to the
  // program of the loss. `startup` initialises the state of the updates (learning rate, moments).
  // Warns of error clips that will never act. Returns the (parameter, gradient) pairs that are
  // updated; throws kInvalidArgument if the loss depends on no trainable parameter.
  std::vector<ParamAndGrad> Minimize(const Variable& loss, ProgramDesc& startup,
                                     const MinimizeOptions& options = {});

  // The first half of Minimize; throws like it. `error_clip` is the callback that appends error
  // clips (see LossScaling::ErrorClip for another one).
  static std::vector<ParamAndGrad> Backward(const Variable& loss,
                                            const MinimizeOptions& options = {},
                                            const BackwardCallback& error_clip = {});

  // The second half of Minimize, for existing gradients, which must be visible from `block`.
  // Appends to `block` first the gradient clips of all parameters (clip/clip.h), then for each
  // parameter its regularizer (regularizer/regularizer.h), its learning-rate multiplier and its
  // update. Clip and regularizer write new variables; <param>@GRAD stays as backward left it. Skips
  // pairs without a gradient and parameters that are not trainable.
  std::vector<ParamAndGrad> ApplyGradients(BlockDesc& block, ProgramDesc& startup,
                                           const std::vector<ParamAndGrad>& params_and_grads);

  // The clip of parameters that have no gradient_clip of their own.
  void SetGradientClip(std::optional<Setting> clip) { gradient_clip_ = std::move(clip); }
  // Whether to count the effect of gradient clips; see CountGradientClips.
  void SetClipStatistics(bool count) { clip_statistics_ = count; }
  // The regularizer of parameters without one of their own; see regularizer/regularizer.h. A
  // parameter's regularizer of the kind "multiplied" is this one with its coeff multiplied by the
  // attr `by` (Caffe's decay_mult).
  void SetRegularizer(std::optional<Setting> regularizer) { regularizer_ = std::move(regularizer); }

  // Selects by name the parameters on which the regularizer of SetRegularizer, and the optimizer's
  // own decay (AdamW, Lamb), act. By default they act on all.
  void SetDecayFilter(DecayFilter decays) { decays_ = std::move(decays); }

  // Divides gradients by this number: before they are clipped, or after it and before the
  // regularizer (Caffe's order). For sums over that many runs, see TrainingStep::accumulate. Throws
  // kInvalidArgument unless it is positive and finite.
  void SetGradientDivisor(double divisor, bool after_clip = false);

  // Makes everything that ApplyGradients appends (clips, regularizers, schedule and its counter,
  // updates) run only at steps where this bool [1] variable and all other added guards hold. Call
  // it before Minimize or ApplyGradients, whose block must see the variable. Without a guard the
  // ops go into the block itself, one update op per parameter, as in Paddle's programs.
  void AddGuard(std::string guard) { guards_.push_back(std::move(guard)); }

  // Makes the rate follow a schedule, appended as ops to the program. Call it before Minimize. The
  // learning rate of the constructor is then unused.
  void SetSchedule(LrSchedulePtr schedule) { schedule_ = std::move(schedule); }

  double learning_rate() const { return learning_rate_; }  // as given to the constructor
  // Name of the [1] variable (float32; float64 if a parameter is) that holds the learning rate,
  // visible from the block that was appended to (persistable unless there is a schedule and no
  // guard); "" before Minimize.
  const std::string& learning_rate_var() const { return learning_rate_var_; }

 protected:
  bool Decays(const std::string& param) const { return !decays_ || decays_(param); }
  // Appends the update of one parameter to update.block. Ops without op_role get the role Optimize
  // and op_role_var.
  virtual void AppendUpdate(const UpdateContext& update) = 0;
  // A persistable variable "<param>_<suffix>_0" of the parameter's optimizer state, made in both
  // programs and filled with `value` by `startup`. It has the parameter's dtype (float32 for a
  // 16-bit parameter) and, unless `shape` is given, its shape.
  static std::string Accumulator(const UpdateContext& update, const std::string& suffix,
                                 double value, const Shape* shape = nullptr);

 private:
  // The stages of a training step; see TrainingStages.
  friend const std::vector<StepStage>& internal::TrainingStages();
  friend class StepUndo;
  void Unscale(StepState& step);
  void AverageBeforeClip(StepState& step);
  void Clip(StepState& step);
  void AverageAfterClip(StepState& step);
  void PrepareLearningRate(StepState& step);
  void DecayAndUpdate(StepState& step);

  void Average(StepState& step) const;
  std::string LearningRateOf(BlockDesc& block, const VarDesc& param);
  std::optional<Setting> ClipOf(const VarDesc& param) const;
  std::optional<Setting> RegularizerOf(const VarDesc& param) const;

  double learning_rate_;
  std::optional<Setting> gradient_clip_, regularizer_;
  bool clip_statistics_ = false;
  DecayFilter decays_;
  double gradient_divisor_ = 1;
  bool divide_after_clip_ = false;
  LrSchedulePtr schedule_;
  std::vector<std::string> guards_;
  std::string learning_rate_var_;
  DType rate_dtype_ = DType::kFloat32;
  std::map<std::pair<int, double>, std::string> scaled_rates_;  // by block and multiplier
};

// --- several optimizers, each for the parameters whose names match ---

// Whether the pattern matches the whole name: * matches any characters, ? matches one.
bool MatchesPattern(std::string_view name, std::string_view pattern);

struct OptimizerGroup {
  std::vector<std::string> params = {};  // patterns of names; empty: all parameters
  std::shared_ptr<Optimizer> optimizer = {};
  std::shared_ptr<WeightAverage> average = {};  // of these parameters; nullptr: none
  // The group's place in a text; errors about the group begin with it.
  std::string place = {};
};

// The pairs of each group, in the order of the groups. Omits pairs without a gradient. Throws
// kInvalidArgument for a parameter that no group matches or more than one, and for a pattern that
// matches no parameter, with the place of the faulty group (the second of two that match).
std::vector<std::vector<ParamAndGrad>> SplitByGroup(const std::vector<OptimizerGroup>& groups,
                                                    const std::vector<ParamAndGrad>& pairs);

// --- where the ops of an update go ---
// They go into a block of the main program, or into a sub-block that runs at the steps that update.

// Calls `body` with a block to append to. Without guards that is `outer` itself. Guards are bool
// [1] variables visible from `outer`; with them it is the sub-block of one conditional_block (role
// Optimize) that runs if all of them hold. Variables made in the sub-block are gone after its run;
// state must be persistable and in the root block, see MakeState (framework/ir/program.h). Throws
// kInvalidArgument for a guard of another dtype or shape.
void AppendGuarded(BlockDesc& outer, const std::vector<std::string>& guards,
                   const std::function<void(BlockDesc& block)>& body);

// Appends out = factor x, with an op that has no role yet. A float64 x is multiplied by the exact
// factor, others by the factor rounded to float.
void AppendScale(BlockDesc& block, const std::string& x, const std::string& out, double factor);

// An average of parameters over the steps, to be evaluated (and deployed) in their place. Append
// the ops that keep an average to the block of the update, after the update, so that a skipped step
// leaves the average unchanged; its state is persistable. Two small programs replace the parameters
// by their averages and restore them, bit for bit. Base of the averages below; derive from it to
// define a new one.
class WeightAverage {
 public:
  virtual ~WeightAverage() = default;

  // Appends the ops that update the averages of parameters of the root block to `block`. To be
  // called once.
  virtual void Append(BlockDesc& block, ProgramDesc& startup,
                      const std::vector<std::string>& params) = 0;

  // Available after Append. Run them in the scope of the training program, one after the other:
  // `apply` saves each parameter as "<param>@BACKUP" and sets it to its average (or leaves it
  // unchanged if there was no update yet); `restore` restores it.
  const ProgramDesc& apply() const { return apply_; }
  const ProgramDesc& restore() const { return restore_; }

 protected:
  // Makes the two programs. `has_average` appends a bool [1] variable: whether there was an update.
  // `average` appends ops that write the average of a parameter into the variable with its name.
  // State variables of `main` can be used by name after they are declared: see Use.
  void MakePrograms(const ProgramDesc& main, const std::vector<std::string>& params,
                    const std::function<Variable(const Writer& w)>& has_average,
                    const std::function<void(const Writer& w, const std::string& param)>& average);

 private:
  ProgramDesc apply_, restore_;
};

// average = d average + (1 - d) parameter, beginning at 0, divided by 1 minus the product of all d
// when it is applied (for a constant d: 1 - d^updates). With `warm_up`, d = min(decay, (1 + t) /
// (10 + t)) at update t = 0, 1, ... (Paddle's thres_steps, TensorFlow's num_updates).
struct ExponentialMovingAverageOptions {
  double decay = 0.999;
  bool warm_up = false;
};
class ExponentialMovingAverage : public WeightAverage {
 public:
  // Throws kInvalidArgument unless 0 <= decay < 1.
  explicit ExponentialMovingAverage(const ExponentialMovingAverageOptions& options = {});
  void Append(BlockDesc& block, ProgramDesc& startup,
              const std::vector<std::string>& params) override;

 private:
  ExponentialMovingAverageOptions options_;
};

// The mean over the latest updates: over a window that grows as `rate` times the number of
// updates, between min_window and max_window, and the previous window (Paddle's ModelAverage;
// op average_accumulates).
struct ModelAverageOptions {
  double rate = 0.15;
  int64_t min_window = 10000;
  int64_t max_window = 10000;
};
class ModelAverage : public WeightAverage {
 public:
  // Throws kInvalidArgument for numbers out of range.
  explicit ModelAverage(const ModelAverageOptions& options = {});
  void Append(BlockDesc& block, ProgramDesc& startup,
              const std::vector<std::string>& params) override;

 private:
  ModelAverageOptions options_;
};

// Lookahead (Zhang et al. 2019): after every k updates, the slow weights move towards the
// parameters by the share alpha, and the parameters restart from them: slow += alpha (fast - slow);
// fast = slow. The slow weights begin with the parameters that `startup` makes (Paddle sets them
// after the first update).
struct LookaheadOptions {
  double alpha = 0.5;
  int64_t k = 5;
};
// Appends lookahead to the block of the update, after the update. Throws kInvalidArgument unless 0
// < alpha <= 1 and k >= 1.
void AppendLookahead(BlockDesc& block, ProgramDesc& startup, const std::vector<std::string>& params,
                     const LookaheadOptions& options = {});

// A training step. For its stages and their order see optimizer/training_step.cc
// and docs/optimizers.md.
struct TrainingStep {
  std::vector<OptimizerGroup> groups = {};  // each updates its parameters; at least one group
  MinimizeOptions backward = {};
  // Loss scaling of the program; a group whose gradients overflow is skipped.
  LossScaling* scaling = nullptr;
  // The number of runs (micro-batches) whose gradients are summed; the last of them updates. Sums
  // and counter are persistable, so a run resumed from a snapshot continues in the middle of a
  // group. A sparse gradient becomes dense. See Optimizer::SetGradientDivisor for the mean.
  int64_t accumulate = 1;
  // No update if the loss of one of its runs is a nan or infinite.
  bool skip_non_finite_loss = false;
  bool count_error_clips = false;  // see CountErrorClip
  std::optional<LookaheadOptions> lookahead = {};
  // The loss's place in a text. Errors of backward, and of other stages that run once and not for
  // each optimizer, begin with it.
  std::string place = {};
};

struct AppendedStep {
  // The updated parameters, with the gradients that reach the optimizers (perhaps sums).
  std::vector<ParamAndGrad> updated;
  TrainingParts parts;  // of the program, as PartsOf reads them back later
};

// Appends the step to the root block of the loss's program. Throws like Optimizer and SplitByGroup,
// and kInvalidArgument for accumulate < 1 or no group.
AppendedStep AppendTrainingStep(const TrainingStep& step, const Variable& loss,
                                ProgramDesc& startup);
// The same for existing gradients, without the stages that concern loss and backward. Appends to
// `block`, which must see the gradients.
AppendedStep AppendTrainingStep(const TrainingStep& step, BlockDesc& block, ProgramDesc& startup,
                                const std::vector<ParamAndGrad>& params_and_grads);

// --- the optimizers ---
// Names, defaults and formulas are Paddle's unless a source is given; `coracle ops
// NAME` shows the formula of each update op, `coracle help NAME` the meaning and range of each
// option. All constructors throw kInvalidArgument for values out of range.

// Base of optimizers that consist of one op with some state.
class OneOpOptimizer : public Optimizer {
 protected:
  struct State {
    // The slots. If `out` is nullptr, the op only reads the state, a power: after each update it is
    // multiplied by `value`.
    const char *in, *out;
    const char* suffix;   // in the variable's name: see Accumulator
    double value = 0;     // initial value
    bool scalar = false;  // shape [1] instead of the parameter's
  };
  OneOpOptimizer(double learning_rate, std::string type, std::vector<State> state, AttrList attrs,
                 bool needs_rate = true);
  // For the built-in kind whose options struct has that type. Its op, state and attrs are declared
  // with its field table.
  OneOpOptimizer(const std::type_info& type, const void* options);
  void AppendUpdate(const UpdateContext& update) override;
  AttrList& attrs() { return attrs_; }

 private:
  std::string type_;
  std::vector<State> state_;
  AttrList attrs_;
  // Whether the op reads the learning rate even if it is 1.
  bool needs_rate_;
};

// The optimizer for an options struct of this library.
template <class Options>
class OptimizerOf : public OneOpOptimizer {
 public:
  explicit OptimizerOf(const Options& options) : OneOpOptimizer(typeid(Options), &options) {}
};

struct SgdOptions {
  using Makes = OptimizerOf<SgdOptions>;
  double learning_rate = 0.01;
};
using Sgd = OptimizerOf<SgdOptions>;

struct MomentumOptions {
  using Makes = OptimizerOf<MomentumOptions>;
  double learning_rate = 0.01;
  double momentum = 0.9;
  bool use_nesterov = false;
  bool velocity_holds_rate = false;
};
using Momentum = OptimizerOf<MomentumOptions>;

struct LarsMomentumOptions {
  using Makes = OptimizerOf<LarsMomentumOptions>;
  double learning_rate = 0.01;
  double momentum = 0.9;
  double lars_coeff = 0.001;
  double lars_weight_decay = 0.0005;
  double epsilon = 0;
};
using LarsMomentum = OptimizerOf<LarsMomentumOptions>;

struct AdagradOptions {
  using Makes = OptimizerOf<AdagradOptions>;
  double learning_rate = 0.01;
  double epsilon = 1e-6;
  double initial_accumulator_value = 0;
};
using Adagrad = OptimizerOf<AdagradOptions>;

struct DecayedAdagradOptions {
  using Makes = OptimizerOf<DecayedAdagradOptions>;
  double learning_rate = 0.01;
  double decay = 0.95;
  double epsilon = 1e-6;
};
using DecayedAdagrad = OptimizerOf<DecayedAdagradOptions>;

// Zeiler's version has no learning rate, Caffe's does. If the rate is the constant 1, the op does
// not get it.
struct AdadeltaOptions {
  using Makes = OptimizerOf<AdadeltaOptions>;
  double learning_rate = 1;
  double epsilon = 1e-6;
  double rho = 0.95;
};
using Adadelta = OptimizerOf<AdadeltaOptions>;

struct AdamOptions {
  using Makes = OptimizerOf<AdamOptions>;
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool lazy_mode = false;
  bool use_epsilon_hat = false;
};
using Adam = OptimizerOf<AdamOptions>;

struct AdamaxOptions {
  using Makes = OptimizerOf<AdamaxOptions>;
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
using Adamax = OptimizerOf<AdamaxOptions>;

struct RmspropOptions {
  using Makes = OptimizerOf<RmspropOptions>;
  double learning_rate = 0.01;
  double rho = 0.95;
  double epsilon = 1e-6;
  double momentum = 0;
  bool centered = false;
};
using Rmsprop = OptimizerOf<RmspropOptions>;

struct FtrlOptions {
  using Makes = OptimizerOf<FtrlOptions>;
  double learning_rate = 0.01;
  double l1 = 0;
  double l2 = 0;
  double lr_power = -0.5;
};
using Ftrl = OptimizerOf<FtrlOptions>;

struct LambOptions {
  using Makes = class Lamb;
  double learning_rate = 0.001;
  double lamb_weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  DecayFilter decays = {};
};
class Lamb : public OptimizerOf<LambOptions> {
 public:
  explicit Lamb(const LambOptions& options);

 protected:
  void AppendUpdate(const UpdateContext& update) override;

 private:
  double weight_decay_;
};

// Adam with decoupled weight decay (Loshchilov and Hutter 2019): parameter *= 1 - rate *
// weight_decay, then adam.
struct AdamWOptions {
  using Makes = class AdamW;
  double learning_rate = 0.001;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  DecayFilter decays = {};
};
class AdamW : public Adam {
 public:
  explicit AdamW(const AdamWOptions& options);

 protected:
  void AppendUpdate(const UpdateContext& update) override;

 private:
  double weight_decay_;
};

// Chen et al.: "Symbolic Discovery of Optimization Algorithms", 2023.
struct LionOptions {
  using Makes = OptimizerOf<LionOptions>;
  double learning_rate = 0.0001;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
};
using Lion = OptimizerOf<LionOptions>;

struct DpsgdOptions {
  using Makes = OptimizerOf<DpsgdOptions>;
  double learning_rate = 0.001;
  double clip = 0.9;
  double batch_size = 0.999;
  double sigma = 1e-8;
};
using Dpsgd = OptimizerOf<DpsgdOptions>;

struct ProximalGdOptions {
  using Makes = OptimizerOf<ProximalGdOptions>;
  double learning_rate = 0.01;
  double l1 = 0;
  double l2 = 0;
};
using ProximalGd = OptimizerOf<ProximalGdOptions>;

struct ProximalAdagradOptions {
  using Makes = OptimizerOf<ProximalAdagradOptions>;
  double learning_rate = 0.01;
  double l1 = 0;
  double l2 = 0;
};
using ProximalAdagrad = OptimizerOf<ProximalAdagradOptions>;

// --- optimizers and learning-rate schedules by name ---
// Their attributes are given as in a text; users can add more. The built-in optimizers have the
// names of their ops, and "adamw": "sgd", "momentum", "lars_momentum", ...; the schedules are the
// functions of lr_schedule.h: "step", "noam", .... Their attrs are the fields of the options
// structs, shown by `coracle help NAME`.

using OptimizerMaker = std::function<std::unique_ptr<Optimizer>(const Setting& setting)>;

// Registers `kind` for MakeOptimizer, job text and its schema. Process-wide and thread-safe; throws
// kAlreadyExists for a kind that is taken.
void RegisterOptimizer(const std::string& kind, FieldTable fields, OptimizerMaker make);
// Registers a kind whose attrs only the maker knows.
void RegisterOptimizer(const std::string& kind, OptimizerMaker make);
// Registers a kind whose options struct is like those in this header: Options::Makes is its class.
template <class Options>
void RegisterOptimizer(const std::string& kind, const Fields<Options>& fields) {
  RegisterOptimizer(kind, fields, [fields](const Setting& setting) {
    const Options options = fields.Read(setting.kind, setting);
    return std::make_unique<typename Options::Makes>(fields.Check(setting.kind, options));
  });
}

KindsWithFields OptimizerFields();  // in the order of registration
// Throws kInvalidArgument for an unknown kind or attr (naming the nearest known one), an attr of
// another type, and any value that the optimizer's constructor refuses.
std::unique_ptr<Optimizer> MakeOptimizer(const Setting& setting);

// The same for schedules. A field with the stand_in "learning_rate" takes the optimizer's rate if a
// text omits it.
using LrScheduleMaker = std::function<LrSchedulePtr(const Setting& setting)>;

// An event of a schedule at the steps given by one of its fields.
struct ScheduleEvent {
  std::string field;  // a number of steps, or a list of them
  std::string what;   // "the warm-up ends"
  // If the event ends the schedule, what follows: "the rate stays".
  std::string then = "";
  // A bool field; if it is true, the event does not happen.
  std::string unless = "";
};

void RegisterLrSchedule(const std::string& kind, FieldTable fields, LrScheduleMaker make,
                        std::vector<ScheduleEvent> events = {});
void RegisterLrSchedule(const std::string& kind, LrScheduleMaker make);
template <class Options>
void RegisterLrSchedule(const std::string& kind, const Fields<Options>& fields,
                        LrSchedulePtr (*make)(const Options& options)) {
  RegisterLrSchedule(kind, fields, [fields, make](const Setting& setting) {
    const std::string who = "learning-rate schedule " + setting.kind;
    const Options options = fields.Read(who, setting);
    return make(fields.Check(who, options));
  });
}
KindsWithFields LrScheduleFields();
std::vector<ScheduleEvent> LrScheduleEvents(const std::string& kind);
LrSchedulePtr MakeLrSchedule(const Setting& setting);

}  // namespace coracle
