#include <coracle/clip/error_clip.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/optimizer/loss_scaling.h>
#include <coracle/optimizer/update_block.h>

namespace coracle {
namespace {

void AppendLogical(BlockDesc& block, const char* type, SlotList inputs, const std::string& out) {
  block.AppendOp(type, std::move(inputs), {{"Out", {out}}}, {{kOpRoleAttr, int32_t{kOptimize}}});
}

std::string Not(BlockDesc& block, const std::string& x) {
  std::string out = MakeTemporary(block, "loss_scaling_not", DType::kBool);
  AppendLogical(block, "logical_not", {{"X", {x}}}, out);
  return out;
}

std::string InFloat32(const Variable& x) {
  std::string out = x.program().FreeName(x.name() + ".cast_fp32");
  VarMeta meta = x.desc().meta();
  meta.dtype = DType::kFloat32;
  x.block().Var(out).SetMeta(meta);
  x.block().AppendOp("cast", {{"X", {x.name()}}}, {{"Out", {out}}},
                     {{"in_dtype", static_cast<int32_t>(x.dtype())},
                      {"out_dtype", static_cast<int32_t>(DType::kFloat32)}});
  return out;
}

// Out = X / Scale in place, and whether all of it is finite.
void AppendCheck(BlockDesc& block, const std::vector<std::string>& grads, const std::string& scale,
                 const std::string& overflow) {
  const OpDesc& op = block.AppendOp("check_finite_and_unscale", {{"X", grads}, {"Scale", {scale}}},
                                    {{"Out", grads}, {"FoundInfinite", {overflow}}},
                                    {{kOpRoleAttr, int32_t{kOptimize}}});
  InferOp(block, op, DefaultOps());
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
    : rule_(LossScaleRuleOf(options)), enabled_(options.enabled), startup_(startup) {
  if (!enabled_) return;
  const auto state = [&](const char* prefix, DType dtype, double value) {
    return MakeState(main, startup, main.UniqueName(prefix), dtype, {1}, value);
  };
  scale_ = state("loss_scaling", DType::kFloat32, options.init_scale);
  good_steps_ = state("num_good_steps", DType::kInt32, 0);
  bad_steps_ = state("num_bad_steps", DType::kInt32, 0);
  skipped_ = state("num_skipped_steps", DType::kInt32, 0);
}

Variable LossScaling::Scale(const Variable& loss) {
  if (!enabled_) return loss;
  BlockDesc& block = loss.block();
  const std::string wide = IsHalf(loss.dtype()) ? InFloat32(loss) : loss.name();
  const std::string out = block.program().FreeName(loss.name() + ".scaled");
  VarMeta meta = loss.desc().meta();
  meta.dtype = Variable::Of(block, wide).dtype();
  block.Var(out).SetMeta(meta);
  block.AppendOp("scale", {{"X", {wide}}, {"ScaleTensor", {scale_}}}, {{"Out", {out}}},
                 {{kOpRoleAttr, int32_t{kLoss}}});
  return Variable::Of(block, out);
}

BackwardCallback LossScaling::ErrorClip(bool count) {
  if (!enabled_) return count ? CountingErrorClipCallback(startup_) : ErrorClipCallback;
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

void LossScaling::Unscale(BlockDesc& block, const std::vector<ParamAndGrad>& pairs,
                          const std::string& overflow) {
  const std::vector<std::string> grads = GradsOf(pairs);
  if (grads.empty()) ThrowInvalid("loss scaling: there are no gradients to unscale");
  AppendCheck(block, grads, scale_, overflow);
  if (entering_finite_.empty()) return;
  const std::string clipped_lie = Not(block, entering_finite_);
  AppendLogical(block, "logical_or", {{"X", {overflow}}, {"Y", {clipped_lie}}}, overflow);
}

// A second look, at what clips have made; nothing where there was no clip.
std::string LossScaling::CheckClipped(BlockDesc& block, const std::vector<ParamAndGrad>& clipped,
                                      const std::string& overflow) {
  const std::string one = MakeTemporary(block, "loss_scaling_one", DType::kFloat32);
  const std::string found = MakeTemporary(block, "found_infinite", DType::kBool);
  block.AppendOp("fill_constant", {}, {{"Out", {one}}},
                 {{"shape", std::vector<int64_t>{1}},
                  {"dtype", static_cast<int32_t>(DType::kFloat32)},
                  {"value", 1.0f},
                  {kOpRoleAttr, int32_t{kOptimize}}});
  AppendCheck(block, GradsOf(clipped), one, found);
  AppendLogical(block, "logical_or", {{"X", {overflow}}, {"Y", {found}}}, overflow);
  return Not(block, found);
}

std::vector<ParamAndGrad> LossScaling::ApplyGradients(
    BlockDesc& block, ProgramDesc& startup, Optimizer& optimizer,
    const std::vector<ParamAndGrad>& pairs, const std::function<void(BlockDesc& block)>& after) {
  if (after) optimizer.AddAfterUpdate(after);
  if (!enabled_) return optimizer.ApplyGradients(block, startup, pairs);
  const std::string overflow = MakeTemporary(block, "found_infinite", DType::kBool);
  Unscale(block, pairs, overflow);
  overflows_.push_back(overflow);
  optimizer.AddGuard(Not(block, overflow));
  optimizer.SetClippedGuard(
      [this, overflow](BlockDesc& at, const std::vector<ParamAndGrad>& clipped) {
        return CheckClipped(at, clipped, overflow);
      });
  std::vector<ParamAndGrad> updated = optimizer.ApplyGradients(block, startup, pairs);
  optimizer.SetClippedGuard({});
  return updated;
}

void LossScaling::Update(BlockDesc& block) {
  if (!enabled_) return;
  if (overflows_.empty())
    ThrowInvalid("loss scaling: Update() before any ApplyGradients(): no gradient was looked at");
  std::string any = overflows_.front();
  for (size_t i = 1; i < overflows_.size(); ++i) {
    std::string either = MakeTemporary(block, "found_infinite", DType::kBool);
    AppendLogical(block, "logical_or", {{"X", {any}}, {"Y", {overflows_[i]}}}, either);
    any = std::move(either);
  }
  block.AppendOp("update_loss_scaling",
                 {{"FoundInfinite", {any}},
                  {"PrevLossScaling", {scale_}},
                  {"InGoodSteps", {good_steps_}},
                  {"InBadSteps", {bad_steps_}},
                  {"InSkippedSteps", {skipped_}}},
                 {{"LossScaling", {scale_}},
                  {"OutGoodSteps", {good_steps_}},
                  {"OutBadSteps", {bad_steps_}},
                  {"OutSkippedSteps", {skipped_}}},
                 {{"incr_every_n_steps", rule_.growth_interval},
                  {"decr_every_n_nan_or_inf", rule_.backoff_interval},
                  {"incr_ratio", static_cast<float>(rule_.growth_factor)},
                  {"decr_ratio", static_cast<float>(rule_.backoff_factor)},
                  {"min_scale", rule_.min_scale},
                  {"max_scale", rule_.max_scale},
                  {"hysteresis", rule_.hysteresis},
                  {"max_skipped_steps", rule_.max_skipped},
                  {kOpRoleAttr, int32_t{kOptimize}}});
  if (entering_finite_.empty()) return;
  block.AppendOp("fill_constant", {}, {{"Out", {entering_finite_}}},
                 {{"shape", std::vector<int64_t>{1}},
                  {"dtype", static_cast<int32_t>(DType::kBool)},
                  {"value", 1.0f},
                  {kOpRoleAttr, int32_t{kOptimize}}});
}

std::vector<ParamAndGrad> LossScaling::Minimize(Optimizer& optimizer, const Variable& loss,
                                                ProgramDesc& startup,
                                                const MinimizeOptions& options) {
  if (!enabled_) return optimizer.Minimize(loss, startup, options);
  const std::vector<ParamAndGrad> pairs = Optimizer::Backward(Scale(loss), options, ErrorClip());
  BlockDesc& block = loss.block();
  std::vector<ParamAndGrad> updated = ApplyGradients(block, startup, optimizer, pairs);
  Update(block);
  return updated;
}

}  // namespace coracle
