#pragma once
// Metrics that compare answers with labels, over a whole test set.

#include <coracle/train/report/metric.h>

#include <memory>

namespace coracle::inline internal {

// Labels as int64, and scores as float64 with matching shapes.
struct LabelledScores {
  Tensor scores, labels;
  int64_t rows, classes;

  // Throws kInvalidArgument unless there are one integer and equally many scores per row.
  LabelledScores(const Tensor& value, const Tensor& label, const MetricConfig& config);
  [[noreturn]] static void ThrowLabel(int64_t row, int64_t wanted, int64_t limit,
                                      const MetricConfig& config);
};

// PRECISION, RECALL, F1 and CONFUSION come from the counts of each class, and R2, MAE and RMSE from
// all numbers. Several ranks get the values of one. Rows with a negative label are not counted.
std::unique_ptr<MetricSum> MakeLabelMetric(const MetricConfig& config);

}  // namespace coracle::inline internal
