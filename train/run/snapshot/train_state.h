#pragma once
// TrainState: what changes during a run.

#include <coracle/communication/rank_times.h>
#include <coracle/train/run/non_finite.h>
#include <coracle/train/run/trainer.h>
#include <coracle/train/run/watch.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace coracle::inline internal {

struct TrainState {
  TrainPlan plan;
  Watch watch;  // the evaluations so far
  NonFiniteLosses non_finite;
  // The result as far as it is known. `steps` counts the steps done, `evaluations` has the last
  // evaluation of each test set, `scope` has the variables.
  TrainResult result;
  int64_t compared = 0;                           // the step of the last comparison of parameters
  bool restored = false;                          // the best parameters have been restored
  std::optional<RankTimes> times = std::nullopt;  // measured from the first step
};

// Sets the metrics of the result, in the order of plan.metric_names.
inline void SetMetrics(const std::vector<double>& values, TrainState& state) {
  state.result.metrics.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    state.result.metrics[i] = {state.plan.metric_names[i], values[i]};
}

}  // namespace coracle::inline internal
