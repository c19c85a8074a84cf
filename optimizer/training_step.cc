#include <coracle/clip/clip.h>
#include <coracle/framework/base/place.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/internal/training_step.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>

namespace coracle {
namespace {

void ScaleLoss(StepState& step) {
  if (step.loss) step.scaled_loss = step.scaling.Scale(step.loss);
}

void Backward(StepState& step) {
  if (!step.loss) return;
  step.pairs = Optimizer::Backward(step.scaled_loss, step.wanted.backward,
                                   step.scaling.ErrorClip(step.wanted.count_error_clips));
}

// Skips an update if the loss of one of its runs is not finite.
void CheckLoss(StepState& step) {
  if (!step.loss || !step.wanted.skip_non_finite_loss) return;
  const Writer w = UpdateWriter(step.block());
  Variable finite = w.Named("loss_is_finite", IsFinite(w.Var(step.loss.name())));
  if (step.wanted.accumulate > 1) {
    ProgramDesc& main = step.block().program();
    const std::string all =
        MakeState(main, step.startup, main.FreeName("@LOSSES_ARE_FINITE@"), DType::kBool, {1}, 1);
    finite = w.Into(all, "logical_and", {{"X", {all}}, {"Y", {finite.name()}}});
    step.resets.push_back({all, 1, TrainingStage::kCheckLoss});
  }
  step.guards.push_back(finite.name());
}

// Counts the run. Returns a bool [1] variable: whether the run is the last one of its group.
std::string AppendCount(const Writer& w, const std::string& counter, int64_t runs) {
  const Variable count = w.Into(counter, "increment", {{"X", {counter}}}, {{"step", 1.0f}});
  const Variable all =
      w.Named("micro_steps", FillConstant(w, DType::kInt64, static_cast<double>(runs)));
  return w.Named("last_micro_step", GreaterEqual(count, all)).name();
}

void Accumulate(StepState& step) {
  if (step.wanted.accumulate == 1) return;
  const Writer w = UpdateWriter(step.block());
  ProgramDesc& main = step.block().program();
  const std::string counter =
      MakeState(main, step.startup, main.FreeName("@MICRO_STEPS@"), DType::kInt64, {1}, 0);
  for (ParamAndGrad& pair : step.pairs) {
    const std::string grad = WideGradient(w, pair.grad);
    const std::string sum = MakeState(main, step.startup, main.FreeName(pair.grad + "@SUM"),
                                      w.Var(grad).dtype(), w.Var(pair.param).shape(), 0);
    w.Into(sum, "sum", {{"X", {sum, grad}}},
           {{kOpRoleVarAttr, std::vector<std::string>{pair.param, pair.grad}}});
    pair.grad = sum;
    step.resets.push_back({sum, 0, TrainingStage::kAccumulate});
  }
  step.resets.push_back({counter, 0, TrainingStage::kAccumulate});
  step.RunOnlyIf({AppendCount(w, counter, step.wanted.accumulate)});
}

void FollowParameters(StepState& step) {
  std::vector<std::string> params;
  params.reserve(step.turn->pairs.size());
  for (const ParamAndGrad& pair : step.turn->pairs) params.push_back(pair.param);
  if (params.empty()) return;
  if (step.wanted.lookahead)
    AppendLookahead(step.block(), step.startup, params, *step.wanted.lookahead);
  if (step.turn->group.average)
    step.turn->group.average->Append(step.block(), step.startup, params);
}

void UpdateScale(StepState& step) {
  if (step.unscaled) step.scaling.Update(step.block());
}

void Reset(StepState& step) {
  for (const auto& [name, value, stage] : step.resets) {
    const Writer w = UpdateWriter(step.block(), {.stage = stage});
    const Variable state = w.Var(name);
    w.Into(name, "fill_constant", {}, FillAttrs(state.shape(), state.dtype(), value));
  }
}

// Appends the stage and marks its ops, except those that have a mark of their own. Ops of backward
// get none: their op_role says enough.
void AppendStage(const StepStage& stage, StepState& step) {
  ProgramDesc& program = step.block().program();
  std::vector<size_t> first;  // new op of each block
  for (int b = 0; b < program.NumBlocks(); ++b) first.push_back(program.Block(b).NumOps());
  stage.append(step);
  if (stage.stage == TrainingStage::kBackward) return;
  first.resize(static_cast<size_t>(program.NumBlocks()), 0);
  for (int b = 0; b < program.NumBlocks(); ++b)
    SetMarks(program.Block(b), first[static_cast<size_t>(b)], {.stage = stage.stage});
}

using StageIterator = std::vector<StepStage>::const_iterator;

// Appends the stages [begin, end) for one optimizer after the other.
std::vector<ParamAndGrad> AppendTurns(StepState& step, StageIterator begin, StageIterator end) {
  const std::vector<OptimizerGroup>& groups = step.wanted.groups;
  const auto split = SplitByGroup(groups, step.pairs);
  const size_t depth = step.open.size();
  std::vector<ParamAndGrad> updated;
  for (size_t i = 0; i < groups.size(); ++i) {
    step.turn.emplace(OptimizerTurn{groups[i], split[i], split[i]});
    AtPlace(groups[i].place, [&] {
      for (auto stage = begin; stage != end; ++stage) AppendStage(*stage, step);
    });
    step.CloseTo(depth);
    updated.insert(updated.end(), step.turn->pairs.begin(), step.turn->pairs.end());
    step.turn.reset();
  }
  return updated;
}

std::vector<ParamAndGrad> AppendStages(StepState& step) {
  const std::vector<StepStage>& stages = TrainingStages();
  std::vector<ParamAndGrad> updated;
  for (auto stage = stages.begin(); stage != stages.end();) {
    if (stage->when == StepStage::kOnce) {
      AtPlace(step.wanted.place, [&] { AppendStage(*stage, step); });
      ++stage;
      continue;
    }
    const auto begin = stage;
    while (stage != stages.end() && stage->when == StepStage::kEachOptimizer) ++stage;
    updated = AppendTurns(step, begin, stage);
  }
  step.CloseTo(0);
  return updated;
}

void Check(const TrainingStep& step) {
  if (step.groups.empty()) ThrowInvalid("training step: there is no optimizer");
  for (const OptimizerGroup& group : step.groups) {
    if (group.optimizer) continue;
    AtPlace(group.place, [] { ThrowInvalid("training step: a group has no optimizer"); });
  }
  if (step.accumulate >= 1) return;
  ThrowInvalid(fmt::format("gradient accumulation: the number of runs must be positive, got {}",
                           step.accumulate));
}

}  // namespace

// If a step is refused, restores what optimizers and loss scaling remember about the programs.
class StepUndo {
 public:
  StepUndo(const TrainingStep& step, LossScaling& scaling)
      : exceptions_(std::uncaught_exceptions()),
        scaling_(scaling),
        entering_finite_(scaling.entering_finite_),
        overflows_(scaling.overflows_) {
    for (const OptimizerGroup& group : step.groups) {
      Optimizer& optimizer = *group.optimizer;
      optimizers_.push_back({optimizer, optimizer.learning_rate_var_, optimizer.rate_dtype_,
                             optimizer.scaled_rates_});
    }
  }
  ~StepUndo() {
    if (std::uncaught_exceptions() <= exceptions_) return;
    scaling_.entering_finite_ = std::move(entering_finite_);
    scaling_.overflows_ = std::move(overflows_);
    for (Rates& before : optimizers_) {
      before.optimizer.learning_rate_var_ = std::move(before.var);
      before.optimizer.rate_dtype_ = before.dtype;
      before.optimizer.scaled_rates_ = std::move(before.scaled);
    }
  }
  StepUndo(const StepUndo&) = delete;
  StepUndo& operator=(const StepUndo&) = delete;

 private:
  struct Rates {
    Optimizer& optimizer;
    std::string var;
    DType dtype;
    std::map<std::pair<int, double>, std::string> scaled;
  };
  const int exceptions_;
  LossScaling& scaling_;
  std::string entering_finite_;
  std::vector<std::string> overflows_;
  std::vector<Rates> optimizers_;
};

namespace {

// `given` are the gradients if there is no loss.
AppendedStep AppendStep(const TrainingStep& step, BlockDesc& block, ProgramDesc& startup,
                        const Variable& loss, std::vector<ParamAndGrad> given) {
  Check(step);
  const EditGuard guard(block.program(), startup);
  LossScaling none(block.program(), startup, {.enabled = false});
  LossScaling& scaling = step.scaling ? *step.scaling : none;
  const StepUndo undo(step, scaling);
  StepState state(step, scaling, block, startup);
  state.loss = loss;
  state.pairs = std::move(given);
  std::erase_if(state.pairs, [](const ParamAndGrad& pair) { return pair.grad.empty(); });
  std::vector<ParamAndGrad> updated = AppendStages(state);
  return {std::move(updated), PartsOf(block.program())};
}

// A stage that calls a method of the current optimizer.
template <void (Optimizer::*kMethod)(StepState&)>
void OfOptimizer(StepState& step) {
  ((*step.turn->group.optimizer).*kMethod)(step);
}

}  // namespace

std::string internal::WideGradient(const Writer& w, const std::string& grad) {
  const Variable var = w.Var(grad);
  if (!IsHalf(var.dtype())) return grad;
  return w.Named(grad + "@FLOAT", Cast(var, DType::kFloat32)).name();
}

const std::vector<StepStage>& internal::TrainingStages() {
  using S = TrainingStage;
  constexpr auto kOnce = StepStage::kOnce;
  constexpr auto kEach = StepStage::kEachOptimizer;
  using O = Optimizer;
  static const std::vector<StepStage> stages = {
      {S::kScaleLoss, kOnce, "the loss times the loss scale", ScaleLoss},
      {S::kBackward, kOnce, "gradients; error clips act when one is complete", Backward},
      {S::kCheckLoss, kOnce, "guards updates by losses that are finite", CheckLoss},
      {S::kAccumulate, kOnce, "sums gradients; all below runs at each k-th run", Accumulate},
      // All-reduce, the sum over machines, belongs here. It then runs once per update, and before
      // the check for overflows, so that all machines skip the same updates.
      {S::kUnscale, kEach, "divides by the loss scale, looks for overflows, opens the guards",
       OfOptimizer<&O::Unscale>},
      {S::kAverage, kEach, "divides sums by the number of runs",
       OfOptimizer<&O::AverageBeforeClip>},
      {S::kClip, kEach, "clips, and checks again for values that are not finite",
       OfOptimizer<&O::Clip>},
      {S::kAverage, kEach, "the same in Caffe's order", OfOptimizer<&O::AverageAfterClip>},
      {S::kSchedule, kEach, "the learning rate", OfOptimizer<&O::PrepareLearningRate>},
      {S::kUpdate, kEach, "weight decay and update, parameter after parameter",
       OfOptimizer<&O::DecayAndUpdate>},
      {S::kParameterAverages, kEach, "lookahead and averages follow the parameters",
       FollowParameters},
      {S::kScaleUpdate, kOnce, "moves the loss scale, for all optimizers", UpdateScale},
      {S::kAccumulate, kOnce,
       "the next group of runs begins with zeros, its losses' flag with true", Reset},
  };
  return stages;
}

OptimizerGroup internal::GroupOf(Optimizer& optimizer) {
  return {.optimizer = std::shared_ptr<Optimizer>(std::shared_ptr<void>(), &optimizer)};
}

StepState::StepState(const TrainingStep& step, LossScaling& loss_scaling, BlockDesc& block,
                     ProgramDesc& startup_program)
    : wanted(step), scaling(loss_scaling), startup(startup_program) {
  open.emplace_back(block, std::vector<std::string>());
}

void StepState::RunOnlyIf(const std::vector<std::string>& new_guards) {
  if (!new_guards.empty()) open.emplace_back(block(), new_guards);
}

void StepState::CloseTo(size_t depth) {
  for (; open.size() > depth; open.pop_back()) open.back().Close({.stage = TrainingStage::kUpdate});
}

AppendedStep AppendTrainingStep(const TrainingStep& step, const Variable& loss,
                                ProgramDesc& startup) {
  if (!loss) ThrowInvalid("training step: got an empty Variable for the loss");
  return AppendStep(step, loss.program().Root(), startup, loss, {});
}

AppendedStep AppendTrainingStep(const TrainingStep& step, BlockDesc& block, ProgramDesc& startup,
                                const std::vector<ParamAndGrad>& params_and_grads) {
  return AppendStep(step, block, startup, {}, params_and_grads);
}

}  // namespace coracle
