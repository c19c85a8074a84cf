#pragma once
// Optimizers: append the ops of a training step to a program.

#include <coracle/backward/backward.h>
#include <coracle/framework/ir/program.h>
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
#include <utility>
#include <vector>

namespace coracle {

class LossScaling;
class WeightAverage;
struct StepState;
struct StepStage;

struct MinimizeOptions {
  std::vector<std::string> parameter_list = {};
  std::vector<std::string> no_grad_set = {};
  const OpRegistry* ops = nullptr;
  RecomputeOptions recompute = {};
};

// Gradients may be selected rows (an embedding's with is_sparse). Sgd, Adagrad and Adam with
// lazy_mode then work on the rows that were read; Momentum and Adam on all rows, as without a
// sparse gradient; none makes a dense gradient. A regularizer acts on all rows, so with one the
// gradient becomes dense.
//
// Says by name which parameters decay; empty: all.
using DecayFilter = std::function<bool(const std::string& param)>;

// Base of all optimizers: derive from it and append your update in AppendUpdate. One object
// serves one program.
class Optimizer {
 public:
  // Throws kInvalidArgument for a learning rate that is negative or not finite.
  explicit Optimizer(double learning_rate);
  virtual ~Optimizer() = default;

  // Backward with error clip, then one update op per parameter (role Optimize) in loss's program;
  // what the updates need (learning rate, moments) is initialised in `startup`. Warns of error
  // clips that will never act. Returns the (parameter, gradient) pairs that are updated; throws
  // kInvalidArgument when the loss depends on no trainable parameter.
  std::vector<ParamAndGrad> Minimize(const Variable& loss, ProgramDesc& startup,
                                     const MinimizeOptions& options = {});

  // The first half of Minimize; throws as it does. `error_clip` is the callback that appends error
  // clips (see LossScaling::ErrorClip for another one).
  static std::vector<ParamAndGrad> Backward(const Variable& loss,
                                            const MinimizeOptions& options = {},
                                            const BackwardCallback& error_clip = {});

  // The second half of Minimize, for gradients that are there already: appends to `block`, which
  // sees them. First the gradient clips of all (clip/clip.h), then for each parameter its
  // regularizer (regularizer/regularizer.h), its learning-rate multiplier, its update. Clip and
  // regularizer write new variables; <param>@GRAD stays as backward left it. Pairs without
  // gradient, and parameters that are not trainable, are passed over.
  std::vector<ParamAndGrad> ApplyGradients(BlockDesc& block, ProgramDesc& startup,
                                           const std::vector<ParamAndGrad>& params_and_grads);

  // The clip of parameters that have no gradient_clip of their own.
  void SetGradientClip(std::optional<Setting> clip) { gradient_clip_ = std::move(clip); }
  // Whether it is counted what gradient clips do: see CountGradientClips.
  void SetClipStatistics(bool count) { clip_statistics_ = count; }
  // The regularizer of parameters that have none of their own; see regularizer/regularizer.h.
  // One of their own of the kind "multiplied" is this one with its coeff multiplied by the attr
  // `by` (Caffe's decay_mult).
  void SetRegularizer(std::optional<Setting> regularizer) { regularizer_ = std::move(regularizer); }

  // Says by name which parameters decay: whether the regularizer of SetRegularizer, and the
  // optimizer's own decay (AdamW, Lamb), act on them. Without it, on all.
  void SetDecayFilter(DecayFilter decays) { decays_ = std::move(decays); }

  // Gradients are divided by this number: before they are clipped, or after it and before the
  // regularizer (Caffe's order). For sums over so many runs, see TrainingStep::accumulate. Throws
  // kInvalidArgument unless it is positive and finite.
  void SetGradientDivisor(double divisor, bool after_clip = false);

  // Everything that ApplyGradients appends (clips, regularizers, schedule and its counter, updates)
  // runs only at the steps where this bool [1] variable holds, and any other guard that was added.
  // Call before Minimize or ApplyGradients, whose block must see the variable. Without a guard the
  // ops go into the block itself, one update op per parameter, as Paddle's programs have it.
  void AddGuard(std::string guard) { guards_.push_back(std::move(guard)); }

  // The rate follows a schedule, as ops of the program (call before Minimize). The constructor's
  // learning rate is not used then.
  void SetSchedule(LrSchedulePtr schedule) { schedule_ = std::move(schedule); }

  double learning_rate() const { return learning_rate_; }  // of the constructor
  // Name of the [1] variable (float32; float64 if a parameter is) that holds the learning rate, to
  // be seen from the block that was appended to (persistable unless there is a schedule and no
  // guard); "" before Minimize.
  const std::string& learning_rate_var() const { return learning_rate_var_; }

 protected:
  bool Decays(const std::string& param) const { return !decays_ || decays_(param); }
  // Appends the update of one parameter to update.block; ops without op_role get the role
  // Optimize and op_role_var.
  virtual void AppendUpdate(const UpdateContext& update) = 0;
  // A persistable variable "<param>_<suffix>_0" of the parameter's optimizer state, made in both
  // programs and filled with `value` by `startup`. It has the parameter's dtype (float32 for one of
  // 16 bits), and its shape unless one is given.
  static std::string Accumulator(const UpdateContext& update, const std::string& suffix,
                                 double value, const Shape* shape = nullptr);

 private:
  // Stages of a training step: see TrainingStages.
  friend const std::vector<StepStage>& TrainingStages();
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

// Several optimizers for the parameters of one program, each for those whose names match.

// Whether the name matches a pattern as a whole: * stands for any characters, ? for one.
bool MatchesPattern(std::string_view name, std::string_view pattern);

struct OptimizerGroup {
  std::vector<std::string> params = {};  // patterns of names; empty: all parameters
  std::shared_ptr<Optimizer> optimizer = {};
  std::shared_ptr<WeightAverage> average = {};  // of these parameters; nullptr: none
  std::string place = {};  // in a text: stands in front of what errors of this group say
};

// The pairs of each group, in the order of the groups. Pairs without gradient are left out.
// Throws kInvalidArgument for a parameter that no group or more than one matches, and for a
// pattern that matches none, at the place of the wrong group: the second of two that match.
std::vector<std::vector<ParamAndGrad>> SplitByGroup(const std::vector<OptimizerGroup>& groups,
                                                    const std::vector<ParamAndGrad>& pairs);

// Where the ops of an update go: into a block of the main program as they are, or into a sub-block
// that runs only at the steps that update.

// Appends to `outer` what `body` appends to the block that it is given. Without guards that is
// `outer` itself. Guards are bool [1] variables that `outer` sees: with them it is the
// sub-block of one conditional_block (role Optimize) that runs if all of them hold. What the
// body makes in its block is gone when the block was run; what must stay is persistable and of
// the root block, see MakeState (framework/ir/program.h). Throws kInvalidArgument for a guard
// of another dtype or shape.
void AppendGuarded(BlockDesc& outer, const std::vector<std::string>& guards,
                   const std::function<void(BlockDesc& block)>& body);

// Appends out = factor x, whose op has no role yet. A float64 x is multiplied by the factor as it
// is, others by it as a float.
void AppendScale(BlockDesc& block, const std::string& x, const std::string& out, double factor);

// Averages of parameters over the steps, to be evaluated (and deployed) in their place. The ops
// that keep an average belong into the block of the update, after it, so that a skipped step leaves
// it alone; its state is persistable. Two small programs put the averages in the parameters' place
// and the parameters back, bit for bit.

// Base of the averages below; derive from it for one of your own.
class WeightAverage {
 public:
  virtual ~WeightAverage() = default;

  // Once: appends to `block` the ops that take parameters of the root block into their averages.
  virtual void Append(BlockDesc& block, ProgramDesc& startup,
                      const std::vector<std::string>& params) = 0;

  // After Append. To be run in the scope of the training program, one after the other: `apply`
  // keeps each parameter as "<param>@BACKUP" and makes it its average (and leaves it as it is when
  // there was no update yet), `restore` puts it back.
  const ProgramDesc& apply() const { return apply_; }
  const ProgramDesc& restore() const { return restore_; }

 protected:
  // Makes the two programs. `has_average` appends what says whether there was an update, a bool [1]
  // variable; `average` what writes the average of a parameter into the variable of its name. State
  // variables of `main` are used by their names once they are declared: see Use.
  void MakePrograms(const ProgramDesc& main, const std::vector<std::string>& params,
                    const std::function<Variable(const Writer& w)>& has_average,
                    const std::function<void(const Writer& w, const std::string& param)>& average);

 private:
  ProgramDesc apply_, restore_;
};

// average = d average + (1 - d) parameter, from 0, and divided by 1 minus the product of all d when
// it is applied (for a constant d: 1 - d^updates). With `warm_up` d = min(decay, (1 + t) / (10 +
// t)) at update t = 0, 1, ... (Paddle's thres_steps, TensorFlow's num_updates).
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

// The mean of the newest updates: of a window that grows with `rate` times the number of
// updates, between min_window and max_window, and the window before it (Paddle's
// ModelAverage; op average_accumulates).
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

// Lookahead (Zhang et al. 2019): after each k updates the slow weights go the share alpha of the
// way to the parameters, and these begin there anew: slow += alpha (fast - slow); fast = slow. Slow
// weights begin as the parameters that `startup` makes (Paddle sets them after the first update).
struct LookaheadOptions {
  double alpha = 0.5;
  int64_t k = 5;
};
// Appends that to the block of the update, after it. Throws kInvalidArgument unless 0 < alpha <= 1
// and k >= 1.
void AppendLookahead(BlockDesc& block, ProgramDesc& startup, const std::vector<std::string>& params,
                     const LookaheadOptions& options = {});

// A training step. Its stages and their order: optimizer/training_step.cc, docs/optimizers.md.
struct TrainingStep {
  std::vector<OptimizerGroup> groups = {};  // each updates its parameters; at least one
  MinimizeOptions backward = {};
  LossScaling* scaling = nullptr;  // of the program; a group whose gradients overflow is skipped
  // The gradients of so many runs (micro-batches) are summed, and the last of them updates. Sums
  // and counter are persistable: a run that is resumed from a snapshot goes on in the middle of a
  // group. A sparse gradient becomes a dense one. See Optimizer::SetGradientDivisor for the mean.
  int64_t accumulate = 1;
  bool skip_non_finite_loss = false;  // no update where a loss of its runs is a nan or infinite
  bool count_error_clips = false;     // see CountErrorClip
  std::optional<LookaheadOptions> lookahead = {};
  // Of the loss in a text: stands in front of what errors say of backward, and of every other stage
  // that runs once and not for each optimizer.
  std::string place = {};
};

// Appends it to the root block of loss's program. Returns the pairs that are updated, with the
// gradients that reach the optimizers: sums, where they are accumulated. Throws as Optimizer does,
// and kInvalidArgument for accumulate < 1, no group, and as SplitByGroup.
std::vector<ParamAndGrad> AppendTrainingStep(const TrainingStep& step, const Variable& loss,
                                             ProgramDesc& startup);
// The same for gradients that are there already, without all that concerns loss and backward: to
// `block`, which sees them.
std::vector<ParamAndGrad> AppendTrainingStep(const TrainingStep& step, BlockDesc& block,
                                             ProgramDesc& startup,
                                             const std::vector<ParamAndGrad>& params_and_grads);

}  // namespace coracle
