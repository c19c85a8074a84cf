#pragma once
// TrainingConfig: what a job says of its training step: optimizers and their parameters, gradient
// accumulation, averages of parameters, losses that are not finite.

#include <coracle/optimizer/optimizers.h>
#include <coracle/optimizer/weight_average.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace coracle {

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

}  // namespace coracle
