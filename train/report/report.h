#pragma once
// The reports of a training run: its plan, its steps and its evaluations.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

inline namespace internal {
class StepWindow;
}

// A result by its printed name.
struct NamedValue {
  std::string name;
  double value = 0;
};

// How often the rows of each label were answered as each class.
struct ConfusionMatrix {
  std::string name;  // of the metric
  int64_t classes = 0;
  std::vector<int64_t> counts = {};           // [classes, classes]: a row for each label
  std::vector<std::string> class_names = {};  // empty: classes are numbers
};

// The plan of a run, reported before its first step.
struct TrainPlan {
  std::string job;
  std::string data;        // description of the training data
  int64_t first_step = 0;  // steps done before (0 unless resumed)
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;
  int64_t parameters = 0;  // number of trainable elements
  std::string loss_name = "loss";
  std::vector<std::string> metric_names;
  std::string resumed_from;  // path of the snapshot; "" for a fresh start
  std::string note;          // a message for the user, or ""
};

// Statistics of one gradient clip, or of the error clip of one variable, since the last display.
struct ClipReport {
  enum class Kind { kGradient, kError };
  Kind kind = Kind::kGradient;
  std::string name;   // group, parameter or kind of a gradient clip; or the variable
  int64_t times = 0;  // number of gradients; for a gradient clip, of updates
  int64_t acted = 0;  // how often it changed a gradient
  double factor = 1;  // the smallest factor by which it multiplied a norm
  double norm = 0;    // for clips by norm: the largest norm that it clipped, and its limit
  double limit = 0;
};

struct StepReport {
  const TrainPlan& plan;
  int64_t step;   // steps done, this one included
  int64_t epoch;  // of this step, counted from 0
  int64_t rows;   // rows of its batch, on all ranks
  double loss;
  StepWindow& window;  // for Coracle's own code; use MeanLoss and MeanMetrics
  // Whether to report this step: a multiple of the job's `display`, or the last.
  bool show;
  // The optimizers' rates at this step, by their variables; known if `show`.
  const std::vector<NamedValue>& learning_rates;
  const std::vector<ClipReport>& clips;  // since the last display; known if `show`
  // For each rank, the share of the time since the last display that it waited for exchanges and
  // for other ranks; known if `show`. Empty for one rank.
  std::vector<double> waited = {};

  // The mean over the steps since the last display, or over the last `average_loss` steps.
  double MeanLoss() const;
  // Means over the steps since the last display, in the order of plan.metric_names. Valid until
  // the next call.
  const std::vector<double>& MeanMetrics() const;
};

struct EvalReport {
  const TrainPlan& plan;
  std::string set;  // name of the test set
  int64_t step;
  int64_t epoch;  // epoch of the last step
  int64_t rows;
  std::vector<NamedValue> values;  // the loss, then the metrics, by their printed names
  bool best = false;               // the watched value is the best so far
  bool restored = false;           // the last evaluation of a run, with the best parameters
  std::vector<ConfusionMatrix> confusions = {};  // of the metrics of this kind
};

// The result of evaluating one test set: the loss, then the metrics, by their printed names.
struct EvaluationRecord {
  std::string set;
  int64_t step = 0;
  std::vector<NamedValue> values;
};

// The best evaluation so far, by the value that the job watches.
struct BestRecord {
  std::string metric;  // "" before the first evaluation
  double value = 0;
  int64_t step = 0;
  // The best value among the evaluations that a longer run would make too, and the number of such
  // evaluations since then. early_stop uses these.
  std::optional<double> counted = std::nullopt;
  int64_t worse = 0;
  std::string counted_metric = {};  // what they are of; "" before the first
};

}  // namespace coracle
