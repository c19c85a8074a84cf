#pragma once
// StepWindow: the displayed loss and metrics of the last training steps.

#include <coracle/train/report/metric.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

class StepWindow {
 public:
  // `average_loss`: the loss is the mean over the rows of the last `average_loss` steps. It is
  // recomputed each time, so that rounding errors do not accumulate. 0: the mean over the steps
  // since Clear. Metrics always cover the steps since Clear, and CONFUSION is left out.
  StepWindow(const std::string& loss, const std::vector<MetricConfig>& metrics,
             int64_t average_loss);

  const std::vector<std::string>& fetches() const { return sums_.fetches(); }
  // `loss` and `rows` belong to the whole batch, `fetched` and `own_rows` to this rank's part.
  void Add(std::span<const Tensor> fetched, int64_t own_rows, double loss, int64_t rows);
  void Clear();
  // Moves the values added on all ranks to rank 0.
  void Merge(const Ranks& ranks) { sums_.Merge(ranks, true); }

  double MeanLoss() const;
  const std::vector<double>& MeanMetrics();  // valid until the next call

  NamedTensors Save() const;
  // Throws kInvalidArgument if `saved` is not the Save of such a window.
  void Load(const NamedTensors& saved);

 private:
  MetricSums sums_;
  size_t most_;                                   // maximum number of losses; 0: none are kept
  std::deque<std::pair<double, double>> losses_;  // (loss * rows, rows), oldest first
  std::vector<double> metrics_;
};

}  // namespace coracle::inline internal
