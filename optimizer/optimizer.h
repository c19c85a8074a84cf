#pragma once
// Optimizers: append the ops of a training step to a program.

#include <coracle/backward/backward.h>
#include <coracle/optimizer/lr_schedule.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

struct MinimizeOptions {
  std::vector<std::string> parameter_list;
  std::vector<std::string> no_grad_set;
  const OpRegistry* ops = nullptr;
  RecomputeOptions recompute;
};

// Gradients may be selected rows (an embedding's with is_sparse). Sgd, Adagrad and Adam with
// lazy_mode then work on the rows that were read; Momentum and Adam on all rows, as without a
// sparse gradient; none makes a dense gradient. A regularizer acts on all rows, so with one the
// gradient becomes dense.
//
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

  // The second half of Minimize, for gradients that are there already. For each parameter, in this
  // order: its gradient clip (kinds by_value and by_norm; those of kind by_global_norm come before
  // all else, see clip/gradient_clip.h), its regularizer (kinds l2_decay: gradient + coeff *
  // parameter, l1_decay: gradient + coeff * sign(parameter)), its learning-rate multiplier, its
  // update. Clip and regularizer write new variables; <param>@GRAD stays as backward left it. Pairs
  // without gradient, and parameters that are not trainable, are passed over.
  std::vector<ParamAndGrad> ApplyGradients(ProgramDesc& main, ProgramDesc& startup,
                                           const std::vector<ParamAndGrad>& params_and_grads);

  // The clip of parameters that have no gradient_clip of their own: "by_value", "by_norm" or
  // "by_global_norm".
  void SetGradientClip(std::optional<Setting> clip) { gradient_clip_ = std::move(clip); }

  // The rate follows a schedule, as ops of the program (call before Minimize). The constructor's
  // learning rate is not used then.
  void SetSchedule(LrSchedulePtr schedule) { schedule_ = std::move(schedule); }

  // Name of the float32 [1] variable that holds the learning rate (persistable unless there is a
  // schedule); "" before Minimize.
  const std::string& learning_rate_var() const { return learning_rate_var_; }

 protected:
  // Appends the update of one parameter to the root block of `main`; ops without op_role get the
  // role Optimize and op_role_var. `pair.grad` is clipped and regularized. `learning_rate` names a
  // [1] variable (the parameter's multiplier is in it already).
  virtual void AppendUpdate(ProgramDesc& main, ProgramDesc& startup, const ParamAndGrad& pair,
                            const std::string& learning_rate) = 0;
  // A persistable variable "<param>_<suffix>_0" of the parameter's optimizer state, made in both
  // programs and filled with `value` by `startup`. It has the parameter's dtype, and its shape
  // unless one is given.
  std::string Accumulator(ProgramDesc& main, ProgramDesc& startup, const std::string& param,
                          const std::string& suffix, double value, const Shape* shape = nullptr);

 private:
  std::string LearningRateOf(ProgramDesc& main, const VarDesc& param);
  const std::optional<Setting>& ClipOf(const VarDesc& param) const;
  // The gradients that a clip by global norm has replaced, by parameter.
  std::map<std::string, std::string> ClipByGlobalNorm(ProgramDesc& main,
                                                      const std::vector<ParamAndGrad>& pairs) const;

  double learning_rate_;
  std::optional<Setting> gradient_clip_;
  LrSchedulePtr schedule_;
  std::string learning_rate_var_;
  std::map<double, std::string> scaled_rates_;  // by multiplier
};

struct SgdOptions {
  double learning_rate = 0.01;
};
class Sgd : public Optimizer {
 public:
  explicit Sgd(const SgdOptions& options);

 protected:
  void AppendUpdate(ProgramDesc&, ProgramDesc&, const ParamAndGrad&, const std::string&) override;
};

struct MomentumOptions {
  double learning_rate = 0.01;
  double momentum = 0.9;
  bool use_nesterov = false;
};
class Momentum : public Optimizer {
 public:
  explicit Momentum(const MomentumOptions& options);

 protected:
  void AppendUpdate(ProgramDesc&, ProgramDesc&, const ParamAndGrad&, const std::string&) override;

 private:
  MomentumOptions options_;
};

struct AdagradOptions {
  double learning_rate = 0.01;
  double epsilon = 1e-6;
  double initial_accumulator_value = 0;
};
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const AdagradOptions& options);

 protected:
  void AppendUpdate(ProgramDesc&, ProgramDesc&, const ParamAndGrad&, const std::string&) override;

 private:
  AdagradOptions options_;
};

struct AdamOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool lazy_mode = false;  // a sparse gradient updates its own rows and their moments only
};
class Adam : public Optimizer {
 public:
  explicit Adam(const AdamOptions& options);

 protected:
  void AppendUpdate(ProgramDesc&, ProgramDesc&, const ParamAndGrad&, const std::string&) override;

 private:
  AdamOptions options_;
};

}  // namespace coracle
