#include <coracle/clip/clip.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/internal/training_step.h>
#include <coracle/regularizer/regularizer.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle {
namespace {

void SetRoles(BlockDesc& block, size_t first, const ParamAndGrad& pair) {
  for (size_t i = first; i < block.NumOps(); ++i) {
    OpDesc& op = block.op(i);
    if (op.HasAttr(kOpRoleAttr)) continue;
    op.SetAttr(kOpRoleAttr, int32_t{kOptimize});
    op.SetAttr(kOpRoleVarAttr, std::vector<std::string>{pair.param, pair.grad});
  }
}

// The factor by which the parameter multiplies the weight decay of its optimizer.
double DecayMultiplier(const VarDesc& param) {
  const std::optional<Setting>& own = param.training().regularizer;
  return own && own->kind == "multiplied" ? own->Get<double>("by", 1) : 1;
}

}  // namespace

Optimizer::Optimizer(double learning_rate) : learning_rate_(learning_rate) {
  if (!(learning_rate >= 0) || std::isinf(learning_rate)) {
    ThrowInvalid(fmt::format("optimizer: learning_rate must be finite and not negative, got {}",
                             learning_rate));
  }
}

std::vector<ParamAndGrad> Optimizer::Minimize(const Variable& loss, ProgramDesc& startup,
                                              const MinimizeOptions& options) {
  return AppendTrainingStep({.groups = {GroupOf(*this)}, .backward = options}, loss, startup)
      .updated;
}

std::vector<ParamAndGrad> Optimizer::Backward(const Variable& loss, const MinimizeOptions& options,
                                              const BackwardCallback& error_clip) {
  BackwardOptions backward;
  backward.parameter_list = options.parameter_list;
  backward.no_grad_set = options.no_grad_set;
  backward.callbacks = {error_clip ? error_clip : ErrorClipCallback};
  backward.recompute = options.recompute;
  backward.ops = options.ops;
  GradToVar grad_to_var;
  std::vector<ParamAndGrad> pairs = AppendBackward(loss, backward, &grad_to_var);
  std::erase_if(pairs, [](const ParamAndGrad& pair) { return pair.grad.empty(); });
  if (pairs.empty()) {
    ThrowInvalid(fmt::format(
        "optimizer: the loss {} depends on no trainable parameter, so there is nothing to minimize",
        Quote(loss.name())));
  }
  WarnOfIdleErrorClips(loss.program(), grad_to_var);
  return pairs;
}

std::vector<ParamAndGrad> Optimizer::ApplyGradients(BlockDesc& block, ProgramDesc& startup,
                                                    const std::vector<ParamAndGrad>& pairs) {
  return AppendTrainingStep({.groups = {GroupOf(*this)}}, block, startup, pairs).updated;
}

void Optimizer::Unscale(StepState& step) {
  BlockDesc& block = step.block();
  if (!learning_rate_var_.empty() && !block.FindVarRecursive(learning_rate_var_)) {
    ThrowInvalid(
        fmt::format("optimizer: the program has no variable {}, the learning rate of this "
                    "optimizer: one object serves one program",
                    Quote(learning_rate_var_)));
  }
  OptimizerTurn& turn = *step.turn;
  std::erase_if(turn.pairs, [&](const ParamAndGrad& pair) {
    return !Variable::Of(block, pair.param).desc().training().trainable;
  });
  turn.gradients = turn.pairs;
  std::vector<std::string> guards = guards_;
  guards.insert(guards.end(), step.guards.begin(), step.guards.end());
  if (step.scaling.enabled() && !turn.gradients.empty()) {
    const Writer w = UpdateWriter(block);
    for (ParamAndGrad& pair : turn.gradients) pair.grad = WideGradient(w, pair.grad);
    guards.push_back(step.scaling.Unscale(block, turn.gradients));
    step.unscaled = true;
  }
  step.RunOnlyIf(guards);
}

void Optimizer::AverageBeforeClip(StepState& step) {
  if (!divide_after_clip_) Average(step);
}

void Optimizer::SetGradientDivisor(double divisor, bool after_clip) {
  if (!(divisor > 0) || std::isinf(divisor)) {
    ThrowInvalid(fmt::format(
        "optimizer: the gradients' divisor must be positive and finite, got {}", divisor));
  }
  gradient_divisor_ = divisor;
  divide_after_clip_ = after_clip;
}

void Optimizer::Average(StepState& step) const {
  if (gradient_divisor_ == 1) return;
  BlockDesc& block = step.block();
  for (ParamAndGrad& pair : step.turn->gradients) {
    const std::string grad = WideGradient(UpdateWriter(block), pair.grad);
    const size_t first = block.NumOps();
    const Writer w(block, DefaultOps(), {.name = [&](const std::string& name) {
                     return block.program().FreeName(name);
                   }});
    const std::string name = GradName(pair.param) + "@MEAN";
    const Variable mean = w.Named(name, w.Var(grad) * (1 / gradient_divisor_));
    SetRoles(block, first, pair);
    pair.grad = mean.name();
  }
}

void Optimizer::Clip(StepState& step) {
  std::vector<ParamAndGrad>& gradients = step.turn->gradients;
  std::vector<ClipMember> members;
  members.reserve(gradients.size());
  const Writer w = UpdateWriter(step.block());
  for (ParamAndGrad& pair : gradients) {
    const std::optional<Setting> clip = ClipOf(Variable::Of(step.block(), pair.param).desc());
    // Values that a clip makes small would have few digits in 16 bits.
    if (clip && clip->kind != NoGradientClip().kind) pair.grad = WideGradient(w, pair.grad);
    members.push_back({pair, clip ? *clip : NoGradientClip()});
  }
  ClippedGradients clips = AppendGradientClips(step.block(), step.startup, members);
  if (clip_statistics_) CountGradientClips(step.block(), step.startup, members, clips.grads);
  bool changed = false;
  for (size_t i = 0; i < members.size(); ++i) {
    changed |= gradients[i].grad != clips.grads[i];
    gradients[i].grad = clips.grads[i];
  }
  if (changed && step.scaling.enabled())
    clips.guards.push_back(step.scaling.CheckAgain(step.block(), gradients));
  step.RunOnlyIf(clips.guards);
}

void Optimizer::AverageAfterClip(StepState& step) {
  if (divide_after_clip_) Average(step);
}

void Optimizer::PrepareLearningRate(StepState& step) {
  if (!learning_rate_var_.empty()) return;
  for (const ParamAndGrad& pair : step.turn->pairs) {
    if (Variable::Of(step.block(), pair.param).dtype() == DType::kFloat64)
      rate_dtype_ = DType::kFloat64;
  }
  if (schedule_) {
    learning_rate_var_ = AppendLrSchedule(*schedule_, step.block(), step.startup, rate_dtype_);
  } else {
    ProgramDesc& main = step.block().program();
    learning_rate_var_ = MakeState(main, step.startup, main.UniqueName("learning_rate"),
                                   rate_dtype_, {1}, learning_rate_);
  }
}

void Optimizer::DecayAndUpdate(StepState& step) {
  BlockDesc& block = step.block();
  const OptimizerTurn& turn = *step.turn;
  for (size_t i = 0; i < turn.pairs.size(); ++i) {
    const VarDesc& param = Variable::Of(block, turn.pairs[i].param).desc();
    const size_t first = block.NumOps();
    const double multiplier = param.training().learning_rate;
    UpdateContext update = {block,
                            step.startup,
                            turn.pairs[i].param,
                            turn.gradients[i].grad,
                            LearningRateOf(block, param),
                            !schedule_ && learning_rate_ * multiplier == 1};
    if (const std::optional<Setting> regularizer = RegularizerOf(param))
      update.grad = AppendRegularizer(update, *regularizer, DecayMultiplier(param));
    AppendUpdate(update);
    SetRoles(block, first, turn.pairs[i]);
  }
}

std::optional<Setting> Optimizer::ClipOf(const VarDesc& param) const {
  const std::optional<Setting>& own = param.training().gradient_clip;
  return own ? own : gradient_clip_;
}

std::optional<Setting> Optimizer::RegularizerOf(const VarDesc& param) const {
  const std::optional<Setting>& own = param.training().regularizer;
  if (own && own->kind != "multiplied") return own;
  return Decays(param.name()) ? regularizer_ : std::nullopt;
}

std::string Optimizer::LearningRateOf(BlockDesc& block, const VarDesc& param) {
  const double multiplier = param.training().learning_rate;
  if (multiplier == 1.0) return learning_rate_var_;
  auto [it, added] = scaled_rates_.try_emplace({block.idx(), multiplier});
  if (added) {
    const Writer w(block, DefaultOps(),
                   {.role = kOptimize | kLRSched,
                    .mark = {.stage = TrainingStage::kSchedule},
                    .stop_gradient = true});
    const Variable rate = w.Var(learning_rate_var_);
    it->second = w.Named(learning_rate_var_ + "_scaled", rate * multiplier).name();
  }
  return it->second;
}

std::string Optimizer::Accumulator(const UpdateContext& update, const std::string& suffix,
                                   double value, const Shape* shape) {
  const VarDesc& var = Variable::Of(update.block, update.param).desc();
  const DType dtype = IsHalf(var.dtype()) ? DType::kFloat32 : var.dtype();
  const Shape filled = shape ? *shape : var.shape();
  ProgramDesc& main = update.block.program();
  return MakeState(main, update.startup, main.UniqueName(update.param + "_" + suffix), dtype,
                   filled, value);
}

}  // namespace coracle
