#pragma once
// What a job says of its optimizers, and the training step that is appended for it: backward,
// gradient accumulation, the optimizers of parameter groups, averages of parameters.

#include <coracle/executor/executor.h>
#include <coracle/framework/tensor/scope.h>
#include <coracle/optimizer/loss_scaling.h>
#include <coracle/optimizer/optimizer_group.h>
#include <coracle/optimizer/optimizers.h>
#include <coracle/optimizer/weight_average.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace coracle {

// A part of a schedule: the rate that the persistable float64 [1] variable `var` of the root block
// holds, which is set between steps. It is `rate` at first: At gives that.
LrSchedulePtr HeldRate(std::string var, double rate);

// The rate falls when a value of the evaluations stops improving.
struct PlateauConfig {
  std::string metric = {};  // printed name of the loss or a metric; "": the loss
  PlateauRate::Options options = {};
  // Of a plateau that is a part of OptimizerConfig::schedule: the variable of its HeldRate, which
  // must hold the optimizer's rate, and the updates that take it. Evaluations count where the next
  // update is one of these.
  std::string held = {};
  int64_t first = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
};

// A step of the job at which a schedule does something, by its place in the job text.
struct ScheduleMark {
  std::string place;
  std::string what;  // "the warm-up ends"
  int64_t step;
  std::string then = "";  // of a schedule's end what follows: "the rate stays"
};

struct OptimizerConfig {
  OptimizerConfig() : OptimizerConfig(SgdOptions()) {}
  // From the options of a built-in optimizer: `job.optimizers = {AdamOptions{.beta1 = 0.5}}`.
  template <class Options>
  requires requires { typename Options::Makes; }
  OptimizerConfig(const Options& options)  // NOLINT: converts on purpose
      : make([options] { return std::make_unique<typename Options::Makes>(options); }) {}

  std::function<std::unique_ptr<Optimizer>()> make;
  Setting setting;                    // of a job text: what `make` makes
  std::vector<std::string> params;    // patterns of names, see MatchesPattern; empty: all
  std::vector<std::string> no_decay;  // patterns: neither the regularizer nor a decay of the
                                      // optimizer's own acts on these
  LrSchedulePtr schedule;
  std::vector<ScheduleMark> schedule_marks;
  std::optional<PlateauConfig> plateau;  // the whole schedule, or a part of it: see `held`
  std::optional<Setting> gradient_clip;  // see Optimizer::SetGradientClip
  std::optional<Setting> regularizer;    // see Optimizer::SetRegularizer
  std::string place;                     // in the job text
};

// What a run does at a step whose loss is a nan or infinite.
enum class NonFiniteLoss {
  kStop,  // ends with an error
  kWarn,  // goes on and tells
  kSkip,  // leaves the update out: parameters, optimizer state, schedule and averages stay
};

struct TrainingConfig {
  std::vector<OptimizerConfig> optimizers = {OptimizerConfig()};
  int64_t iter_size = 1;             // batches whose gradients make one update
  bool sum_gradients = false;        // their sum instead of their mean
  bool clip_before_average = false;  // the clip sees the sum (Caffe's order)
  // Evaluated and deployed in place of the parameters.
  std::variant<std::monostate, ExponentialMovingAverageOptions, ModelAverageOptions> average = {};
  std::optional<LookaheadOptions> lookahead = {};
  NonFiniteLoss non_finite_loss = NonFiniteLoss::kStop;
  bool clip_statistics = true;  // what error clips and gradient clips do is counted
};

// What a training step leaves to be done between runs.
class AppendedTraining {
 public:
  // Appends backward and the update to loss's program. Errors have the place in the job text in
  // front: the optimizer's, or `place`, the loss's. `scaling` is that of the program; a group whose
  // gradients overflow is skipped.
  static AppendedTraining Append(const TrainingConfig& config, const Variable& loss,
                                 const std::string& place, LossScaling& scaling,
                                 ProgramDesc& startup, const MinimizeOptions& options);

  // Around an evaluation, or what deploys the model: puts averages in the parameters' place, and
  // the parameters back. Do nothing where there are none.
  void UseAverages(const Executor& executor, Scope& scope) const;
  void UseParameters(const Executor& executor, Scope& scope) const;

  // The metrics that plateaus watch, with the places of their optimizers.
  std::vector<std::pair<std::string, std::string>> Watched() const;
  // Tells the plateaus the values of an evaluation: `value(metric)` is asked for those they watch.
  // Returns a line for each rate that fell.
  std::vector<std::string> AfterEvaluation(
      Scope& scope, const std::function<double(const std::string& metric)>& value) const;

 private:
  struct Plateau {
    PlateauConfig config;
    std::string place;
    double first_rate;
    std::string rate, state;  // variables
    std::string counter;      // of the updates; "" where the plateau is the whole schedule
    bool InForce(const Scope& scope) const;
  };
  void AddPlateau(const OptimizerConfig& config, const Optimizer& optimizer, ProgramDesc& main,
                  ProgramDesc& startup);

  std::vector<Plateau> plateaus_;
  std::vector<std::shared_ptr<const WeightAverage>> averages_;
};

}  // namespace coracle
