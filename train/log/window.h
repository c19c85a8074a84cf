#pragma once
// StepWindow: the loss and the metrics of the last training steps, as they are shown.

#include <coracle/train/run/metric.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

class StepWindow {
 public:
  // `average_loss`: the loss is the mean of the last so many steps, each weighing as many as its
  // rows, summed anew each time so that nothing cancels; 0: of those since Clear. Metrics are
  // always of those since Clear.
  StepWindow(const std::string& loss, const std::vector<MetricConfig>& metrics,
             int64_t average_loss);

  const std::vector<std::string>& fetches() const { return sums_.fetches(); }
  // `loss` and `rows` are of the whole batch, `fetched` and `own_rows` of this rank's part.
  void Add(std::span<const Tensor> fetched, int64_t own_rows, double loss, int64_t rows);
  void Clear();
  // What all ranks have added is then rank 0's.
  void Merge(const Ranks& ranks) { sums_.Merge(ranks, true); }

  double MeanLoss() const;
  const std::vector<double>& MeanMetrics();  // valid until the next call

  NamedTensors Save() const;
  // Throws kInvalidArgument for what is no Save of such a window.
  void Load(const NamedTensors& saved);

 private:
  MetricSums sums_;
  size_t most_;                                   // of losses; 0: none are kept
  std::deque<std::pair<double, double>> losses_;  // loss * rows, rows; the oldest first
  std::vector<double> metrics_;
};

}  // namespace coracle
