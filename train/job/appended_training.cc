#include <coracle/framework/base/place.h>
#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/train/job/appended_training.h>
#include <coracle/train/job/names.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

constexpr int64_t kPlateauNumbers = 5;

// Keeps the state of a plateau in a float64 variable, which is saved with the program's
// other variables.
std::string MakePlateauState(ProgramDesc& main, ProgramDesc& startup, const std::string& rate) {
  return MakeState(main, startup, main.FreeName(rate + "_plateau"), DType::kFloat64,
                   {kPlateauNumbers}, 0);
}

// Loads the state. All zeros mean that there was no evaluation yet.
PlateauRate::State Load(const Scope& scope, const std::string& var, double first_rate) {
  const auto numbers = scope.Get(var).span<double>();
  PlateauRate::State state;
  state.any = numbers[1] != 0;
  state.best = numbers[2];
  state.bad = static_cast<int64_t>(numbers[3]);
  state.cooldown = static_cast<int64_t>(numbers[4]);
  state.rate = numbers[0] == 0 ? first_rate : numbers[0];
  return state;
}

void Save(Scope& scope, const std::string& var, const PlateauRate::State& state) {
  scope.Set(var, Tensor::Of<double>({kPlateauNumbers}, {state.rate, state.any ? 1.0 : 0.0,
                                                        state.best, static_cast<double>(state.bad),
                                                        static_cast<double>(state.cooldown)}));
}

std::unique_ptr<Optimizer> MakeAsGiven(const OptimizerConfig& config) {
  RequireFunction(config.make, "the `make` of an optimizer of the job");
  std::unique_ptr<Optimizer> optimizer = config.make();
  Required(optimizer.get(), "the optimizer that a job's `make` returned");
  return optimizer;
}

std::shared_ptr<Optimizer> Make(const OptimizerConfig& config, const TrainingConfig& training) {
  std::shared_ptr<Optimizer> optimizer = MakeAsGiven(config);
  if (config.schedule) optimizer->SetSchedule(config.schedule);
  optimizer->SetGradientClip(config.gradient_clip);
  optimizer->SetClipStatistics(training.clip_statistics);
  optimizer->SetRegularizer(config.regularizer);
  if (!config.no_decay.empty()) {
    optimizer->SetDecayFilter([patterns = config.no_decay](const std::string& param) {
      return !MatchesAny(patterns, param);
    });
  }
  if (!training.sum_gradients) {
    optimizer->SetGradientDivisor(static_cast<double>(training.iter_size),
                                  training.clip_before_average);
  }
  return optimizer;
}

std::shared_ptr<WeightAverage> MakeAverage(const TrainingConfig& config) {
  if (const auto* ema = std::get_if<ExponentialMovingAverageOptions>(&config.average))
    return std::make_shared<ExponentialMovingAverage>(*ema);
  if (const auto* mean = std::get_if<ModelAverageOptions>(&config.average))
    return std::make_shared<ModelAverage>(*mean);
  return nullptr;
}

class Held : public LrSchedule {
 public:
  Held(std::string var, double rate) : var_(std::move(var)), rate_(rate) {}
  double At(int64_t) const override { return rate_; }
  Variable Append(const Variable& t) const override { return Variable::Of(t.block(), var_); }

 private:
  std::string var_;
  double rate_;
};

// Makes the variable of the rate. Call it before the schedule that reads the variable is appended.
void MakeHeldRate(const OptimizerConfig& config, ProgramDesc& main, ProgramDesc& startup) {
  if (!config.plateau || !config.schedule) return;
  const std::string& held = config.plateau->held;
  if (held.empty()) ThrowInvalid("plateau together with another schedule must be a part of it");
  if (main.Root().FindVar(held)) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("plateau: the model already has a variable {}", Quote(held)));
  }
  MakeState(main, startup, held, DType::kFloat64, {1}, MakeAsGiven(config)->learning_rate());
}

// The step counter of the schedule that computes the rate.
std::string CounterOf(const TrainingParts& parts, const std::string& rate) {
  for (const TrainingParts::Schedule& schedule : parts.schedules)
    if (schedule.rate == rate) return schedule.counter;
  throw InternalError("plateau: no op counts the updates of " + Quote(rate));
}

}  // namespace

LrSchedulePtr HeldRate(std::string var, double rate) {
  return std::make_shared<Held>(std::move(var), rate);
}

AppendedTraining AppendedTraining::Append(const TrainingConfig& config, const Variable& loss,
                                          const std::string& place, LossScaling& scaling,
                                          ProgramDesc& startup, const MinimizeOptions& options) {
  ProgramDesc& main = loss.program();
  AppendedTraining training;
  for (const OptimizerConfig& each : config.optimizers)
    AtPlace(each.place, [&] { MakeHeldRate(each, main, startup); });
  TrainingStep step = {.backward = options,
                       .scaling = &scaling,
                       .accumulate = config.iter_size,
                       .skip_non_finite_loss = config.non_finite_loss == NonFiniteLoss::kSkip,
                       .count_error_clips = config.clip_statistics,
                       .lookahead = config.lookahead,
                       .place = place};
  for (const OptimizerConfig& each : config.optimizers) {
    step.groups.push_back({.params = each.params,
                           .optimizer = AtPlace(each.place, [&] { return Make(each, config); }),
                           .average = MakeAverage(config),
                           .place = each.place});
    if (step.groups.back().average) training.averages_.push_back(step.groups.back().average);
  }
  const TrainingParts parts = AppendTrainingStep(step, loss, startup).parts;
  for (size_t i = 0; i < step.groups.size(); ++i) {
    if (config.optimizers[i].plateau)
      training.AddPlateau(config.optimizers[i], *step.groups[i].optimizer, parts, main, startup);
  }
  return training;
}

void AppendedTraining::AddPlateau(const OptimizerConfig& config, const Optimizer& optimizer,
                                  const TrainingParts& parts, ProgramDesc& main,
                                  ProgramDesc& startup) {
  const std::string& used = optimizer.learning_rate_var();
  const std::string& rate = config.schedule ? config.plateau->held : used;
  plateaus_.push_back({*config.plateau, config.place, optimizer.learning_rate(), rate,
                       MakePlateauState(main, startup, rate),
                       config.schedule ? CounterOf(parts, used) : ""});
}

bool AppendedTraining::Plateau::InForce(const Scope& scope) const {
  if (counter.empty()) return true;
  const int64_t next = scope.Get(counter).Item<int64_t>() + 1;  // the counter starts at -1
  return next >= config.first && next < config.end;
}

void AppendedTraining::UseAverages(const Executor& executor, Scope& scope) const {
  for (const auto& average : averages_) executor.Run(average->apply(), scope);
}

void AppendedTraining::UseParameters(const Executor& executor, Scope& scope) const {
  for (const auto& average : averages_) executor.Run(average->restore(), scope);
}

std::vector<std::pair<std::string, std::string>> AppendedTraining::Watched() const {
  std::vector<std::pair<std::string, std::string>> watched;
  watched.reserve(plateaus_.size());
  for (const Plateau& plateau : plateaus_)
    watched.emplace_back(plateau.config.metric, plateau.place);
  return watched;
}

std::vector<std::string> AppendedTraining::AfterEvaluation(
    Scope& scope, const std::function<double(const std::string& metric)>& value) const {
  std::vector<std::string> lines;
  for (const Plateau& plateau : plateaus_) {
    if (!plateau.InForce(scope)) continue;
    PlateauRate rate(plateau.first_rate, plateau.config.options);
    rate.SetState(Load(scope, plateau.state, plateau.first_rate));
    const double before = rate.rate();
    rate.Update(value(plateau.config.metric));
    Save(scope, plateau.state, rate.state());
    if (rate.rate() == before) continue;
    const Tensor& held = scope.Get(plateau.rate);
    scope.Set(plateau.rate, Tensor::Of<double>({1}, {rate.rate()}).Cast(held.dtype()));
    lines.push_back(
        fmt::format("plateau: {} goes from {:g} to {:g}", plateau.rate, before, rate.rate()));
  }
  return lines;
}

}  // namespace coracle::inline internal
