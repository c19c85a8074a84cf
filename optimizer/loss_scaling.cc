#include <coracle/clip/clip.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/update/loss_scale.h>
#include <coracle/optimizer/internal/training_step.h>

namespace coracle {
namespace {

std::string NotOf(const Writer& w, const std::string& x) {
  return w.Named("loss_scaling_not", Not(w.Var(x))).name();
}

// Appends Out = X / Scale in place; the new variable `overflow` becomes whether an element is
// not finite.
std::string AppendCheck(const Writer& w, const std::vector<std::string>& grads,
                        const std::string& scale) {
  const std::string overflow = MakeTemporary(w.block(), "found_infinite", DType::kBool);
  w.Append("check_finite_and_unscale", {{"X", grads}, {"Scale", {scale}}},
           {{"Out", grads}, {"FoundInfinite", {overflow}}});
  return overflow;
}

std::vector<std::string> GradsOf(const std::vector<ParamAndGrad>& pairs) {
  std::vector<std::string> grads;
  grads.reserve(pairs.size());
  for (const ParamAndGrad& pair : pairs) {
    if (!pair.grad.empty()) grads.push_back(pair.grad);
  }
  return grads;
}

}  // namespace

LossScaling::LossScaling(ProgramDesc& main, ProgramDesc& startup, const GradScalerOptions& options)
    : options_(options), startup_(startup) {
  const EditGuard guard(main, startup);
  LossScaleRuleOf(options);
  if (!options_.enabled) return;
  const auto state = [&](const char* prefix, DType dtype, double value) {
    return MakeState(main, startup, main.UniqueName(prefix), dtype, {1}, value);
  };
  scale_ = state("loss_scaling", DType::kFloat32, options.init_scale);
  good_steps_ = state("num_good_steps", DType::kInt32, 0);
  bad_steps_ = state("num_bad_steps", DType::kInt32, 0);
  skipped_ = state("num_skipped_steps", DType::kInt32, 0);
}

Variable LossScaling::Scale(const Variable& loss) {
  if (!options_.enabled) return loss;
  const EditGuard guard(loss.program());
  ProgramDesc& main = loss.program();
  const Writer w(loss.block(), DefaultOps(), {.mark = {.stage = TrainingStage::kScaleLoss}});
  std::string wide = loss.name();
  if (IsHalf(loss.dtype())) {
    wide = w.Into(main.FreeName(wide + ".cast_fp32"), "cast", {{"X", {wide}}},
                  CastAttrs(loss.dtype(), DType::kFloat32))
               .name();
  }
  return w.Into(main.FreeName(loss.name() + ".scaled"), "scale",
                {{"X", {wide}}, {"ScaleTensor", {scale_}}}, {{kOpRoleAttr, int32_t{kLoss}}});
}

BackwardCallback LossScaling::ErrorClip(bool count) {
  if (!options_.enabled) return count ? CountingErrorClipCallback(startup_) : ErrorClipCallback;
  return [this, count](BlockDesc& block, const GradToVar& grad_to_var) {
    AppendErrorClips(block, grad_to_var,
                     [this, count](BlockDesc& at, const BaseErrorClipAttr& clip,
                                   const std::string& grad, const std::string& var) {
                       if (entering_finite_.empty()) {
                         ProgramDesc& main = at.program();
                         entering_finite_ =
                             MakeState(main, startup_, main.UniqueName("error_clip_finite"),
                                       DType::kBool, {1}, 1);
                       }
                       AppendScaledErrorClip(
                           at, clip, grad, scale_, entering_finite_,
                           [&](const std::string& clipped, const std::function<void()>& append) {
                             count ? CountErrorClip(at, startup_, clipped, var, append) : append();
                           });
                     });
  };
}

std::string LossScaling::Unscale(BlockDesc& block, const std::vector<ParamAndGrad>& pairs) {
  const EditGuard guard(block.program());
  if (!options_.enabled) ThrowInvalid("loss scaling: Unscale() is called while disabled");
  const std::vector<std::string> grads = GradsOf(pairs);
  if (grads.empty()) ThrowInvalid("loss scaling: there are no gradients to unscale");
  const Writer w = UpdateWriter(block, {.stage = TrainingStage::kUnscale});
  const std::string overflow = AppendCheck(w, grads, scale_);
  if (!entering_finite_.empty())
    w.Into(overflow, "logical_or", {{"X", {overflow}}, {"Y", {NotOf(w, entering_finite_)}}});
  overflows_.push_back(overflow);
  return NotOf(w, overflow);
}

std::string LossScaling::CheckAgain(BlockDesc& block, const std::vector<ParamAndGrad>& clipped) {
  const EditGuard guard(block.program());
  if (overflows_.empty())
    ThrowInvalid("loss scaling: CheckAgain() before any Unscale(): no gradient was looked at");
  const std::string& overflow = overflows_.back();
  const Writer w = UpdateWriter(block, {.stage = TrainingStage::kUnscale});
  const Variable one = w.Named("loss_scaling_one", FillConstant(w, DType::kFloat32, 1));
  const std::string found = AppendCheck(w, GradsOf(clipped), one.name());
  w.Into(overflow, "logical_or", {{"X", {overflow}}, {"Y", {found}}});
  return NotOf(w, found);
}

void LossScaling::Update(BlockDesc& block) {
  const EditGuard guard(block.program());
  if (!options_.enabled) return;
  if (overflows_.empty())
    ThrowInvalid("loss scaling: Update() before any Unscale(): no gradient was looked at");
  const LossScaleRule rule = LossScaleRuleOf(options_);
  const Writer w = UpdateWriter(block, {.stage = TrainingStage::kScaleUpdate});
  Variable any = w.Var(overflows_.front());
  for (size_t i = 1; i < overflows_.size(); ++i)
    any = w.Named("found_infinite", Or(any, w.Var(overflows_[i])));
  w.Append("update_loss_scaling",
           {{"FoundInfinite", {any.name()}},
            {"PrevLossScaling", {scale_}},
            {"InGoodSteps", {good_steps_}},
            {"InBadSteps", {bad_steps_}},
            {"InSkippedSteps", {skipped_}}},
           {{"LossScaling", {scale_}},
            {"OutGoodSteps", {good_steps_}},
            {"OutBadSteps", {bad_steps_}},
            {"OutSkippedSteps", {skipped_}}},
           {{"incr_every_n_steps", rule.growth_interval},
            {"decr_every_n_nan_or_inf", rule.backoff_interval},
            {"incr_ratio", static_cast<float>(rule.growth_factor)},
            {"decr_ratio", static_cast<float>(rule.backoff_factor)},
            {"min_scale", rule.min_scale},
            {"max_scale", rule.max_scale},
            {"hysteresis", rule.hysteresis},
            {"max_skipped_steps", rule.max_skipped}});
  if (!entering_finite_.empty())
    w.Into(entering_finite_, "fill_constant", {}, FillAttrs({1}, DType::kBool, 1));
}

std::vector<ParamAndGrad> LossScaling::Minimize(Optimizer& optimizer, const Variable& loss,
                                                ProgramDesc& startup,
                                                const MinimizeOptions& options) {
  return AppendTrainingStep({.groups = {GroupOf(optimizer)}, .backward = options, .scaling = this},
                            loss, startup)
      .updated;
}

}  // namespace coracle
