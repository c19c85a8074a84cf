#pragma once
// The training step that is appended for a job: backward, gradient accumulation, the optimizers of
// parameter groups, averages of parameters.

#include <coracle/executor/executor.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/train/job/job.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// A part of a schedule: the rate that the persistable float64 [1] variable `var` of the root block
// holds, which is set between steps. It is `rate` at first: At gives that.
LrSchedulePtr HeldRate(std::string var, double rate);

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
