#pragma once
// The part of a training step that a job appends: backward, gradient accumulation, the optimizers
// of parameter groups, and averages of parameters.

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

namespace coracle::inline internal {

// A schedule, or part of one, whose rate is in `var`, a persistable float64 [1] variable of the
// root block that is set between steps. The rate is `rate` at first, and At returns that.
LrSchedulePtr HeldRate(std::string var, double rate);

// The training step's work between runs of the program.
class AppendedTraining {
 public:
  // Appends backward and the update to the program of `loss`. Errors begin with a place in the job
  // text: of the optimizer, or `place`, of the loss. `scaling` belongs to the program; a
  // parameter group whose gradients overflow is skipped.
  static AppendedTraining Append(const TrainingConfig& config, const Variable& loss,
                                 const std::string& place, LossScaling& scaling,
                                 ProgramDesc& startup, const MinimizeOptions& options);

  // Call these around an evaluation or the saving of a deployed model: UseAverages replaces the
  // parameters by their averages, UseParameters restores them. They do nothing without averages.
  void UseAverages(const Executor& executor, Scope& scope) const;
  void UseParameters(const Executor& executor, Scope& scope) const;

  // The metrics watched by plateaus, each with the place of its optimizer.
  std::vector<std::pair<std::string, std::string>> Watched() const;
  // Passes the results of an evaluation to the plateaus; `value(metric)` is called for each metric
  // that they watch. Returns a line for each rate that fell.
  std::vector<std::string> AfterEvaluation(
      Scope& scope, const std::function<double(const std::string& metric)>& value) const;

 private:
  struct Plateau {
    PlateauConfig config;
    std::string place;
    double first_rate;
    std::string rate, state;  // variables
    std::string counter;      // of the updates; "" if the plateau is the whole schedule
    bool InForce(const Scope& scope) const;
  };
  void AddPlateau(const OptimizerConfig& config, const Optimizer& optimizer,
                  const TrainingParts& parts, ProgramDesc& main, ProgramDesc& startup);

  std::vector<Plateau> plateaus_;
  std::vector<std::shared_ptr<const WeightAverage>> averages_;
};

}  // namespace coracle::inline internal
