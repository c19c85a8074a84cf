#pragma once
// Optimizers: append the ops of a training step to a program.

#include <coracle/backward/backward.h>
#include <coracle/optimizer/lr_schedule.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

struct MinimizeOptions {
  std::vector<std::string> parameter_list = {};
  std::vector<std::string> no_grad_set = {};
  const OpRegistry* ops = nullptr;
  RecomputeOptions recompute = {};
};

// What the update of one parameter is appended to, and for what.
struct UpdateContext {
  BlockDesc& block;  // where its ops go, and its temporaries: see AppendGuarded (update_block.h)
  ProgramDesc& startup;  // fills new state
  std::string param;
  std::string grad;           // clipped and regularized
  std::string learning_rate;  // a [1] variable; the parameter's multiplier is in it
  bool unit_rate;             // it is the constant 1
};

// Gradients may be selected rows (an embedding's with is_sparse). Sgd, Adagrad and Adam with
// lazy_mode then work on the rows that were read; Momentum and Adam on all rows, as without a
// sparse gradient; none makes a dense gradient. A regularizer acts on all rows, so with one the
// gradient becomes dense.
//
// Says by name which parameters decay; empty: all.
using DecayFilter = std::function<bool(const std::string& param)>;

// Base of all optimizers: derive from it and append your update in AppendUpdate. One object serves
// one program.
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
  // sees them. First the gradient clips of all (clip/gradient_clip.h), then for each parameter its
  // regularizer (optimizer/regularizer.h), its learning-rate multiplier, its update. Clip and
  // regularizer write new variables; <param>@GRAD stays as backward left it. Pairs without
  // gradient, and parameters that are not trainable, are passed over.
  std::vector<ParamAndGrad> ApplyGradients(BlockDesc& block, ProgramDesc& startup,
                                           const std::vector<ParamAndGrad>& params_and_grads);

  // The clip of parameters that have no gradient_clip of their own.
  void SetGradientClip(std::optional<Setting> clip) { gradient_clip_ = std::move(clip); }
  // Whether it is counted what gradient clips do: see CountGradientClips.
  void SetClipStatistics(bool count) { clip_statistics_ = count; }
  // The regularizer of parameters that have none of their own; see optimizer/regularizer.h. One of
  // their own of the kind "multiplied" is this one with its coeff multiplied by the attr `by`
  // (Caffe's decay_mult).
  void SetRegularizer(std::optional<Setting> regularizer) { regularizer_ = std::move(regularizer); }

  // Says by name which parameters decay: whether the regularizer of SetRegularizer, and the
  // optimizer's own decay (AdamW, Lamb), act on them. Without it, on all.
  void SetDecayFilter(DecayFilter decays) { decays_ = std::move(decays); }

  // Gradients are divided by this number: before they are clipped, or after it and before the
  // regularizer (Caffe's order). For sums over so many runs, see gradient_accumulation.h. Throws
  // kInvalidArgument unless it is positive and finite.
  void SetGradientDivisor(double divisor, bool after_clip = false);

  // Everything that ApplyGradients appends (clips, regularizers, schedule and its counter, updates)
  // runs only at the steps where this bool [1] variable holds, and any other guard that was added.
  // Call before Minimize or ApplyGradients, whose block must see the variable. Without a guard the
  // ops go into the block itself, one update op per parameter, as Paddle's programs have it.
  void AddGuard(std::string guard) { guards_.push_back(std::move(guard)); }

  // Appends what belongs to an update behind the updates of all parameters, in their block:
  // averages.
  using AfterUpdate = std::function<void(BlockDesc& block)>;
  void AddAfterUpdate(AfterUpdate append) { after_update_.push_back(std::move(append)); }
  // Asked where gradients were clipped: appends to the block of the clips what tells from their
  // results whether to update, and returns that bool [1] variable. Schedule, regularizers and
  // updates are then guarded by it too. (A step whose clip made an infinite gradient is skipped.)
  using ClippedGuard =
      std::function<std::string(BlockDesc& block, const std::vector<ParamAndGrad>& clipped)>;
  void SetClippedGuard(ClippedGuard guard) { clipped_guard_ = std::move(guard); }

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
  // Appends the update of one parameter to update.block; ops without op_role get the role Optimize
  // and op_role_var.
  virtual void AppendUpdate(const UpdateContext& update) = 0;
  // A persistable variable "<param>_<suffix>_0" of the parameter's optimizer state, made in both
  // programs and filled with `value` by `startup`. It has the parameter's dtype (float32 for one of
  // 16 bits), and its shape unless one is given.
  static std::string Accumulator(const UpdateContext& update, const std::string& suffix,
                                 double value, const Shape* shape = nullptr);

 private:
  void PrepareLearningRate(BlockDesc& block, ProgramDesc& startup,
                           const std::vector<ParamAndGrad>& pairs);
  std::vector<ParamAndGrad> Divided(BlockDesc& block, std::vector<ParamAndGrad> pairs) const;
  void AppendAll(BlockDesc& block, ProgramDesc& startup, const std::vector<ParamAndGrad>& pairs);
  void AppendUpdates(BlockDesc& block, ProgramDesc& startup, const std::vector<ParamAndGrad>& pairs,
                     const std::vector<ParamAndGrad>& clipped);
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
  ClippedGuard clipped_guard_;
  std::vector<AfterUpdate> after_update_;
  std::string learning_rate_var_;
  DType rate_dtype_ = DType::kFloat32;
  std::map<std::pair<int, double>, std::string> scaled_rates_;  // by block and multiplier
};

}  // namespace coracle
