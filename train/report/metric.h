#pragma once
// Sums metrics over batches.

#include <coracle/communication/communicator.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/job/job.h>
#include <coracle/train/report/report.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Returns the only element of a tensor of a float32, float64 or integer dtype. `name` is for
// the error.
double ScalarOf(const Tensor& tensor, const std::string& name);

// Sums one metric over batches.
class MetricSum {
 public:
  virtual ~MetricSum() = default;
  // `value` and `label` are the values that a run fetched for the config's var and label; a batch
  // is weighted by its number of rows. Throws kInvalidArgument for tensors of another form, and
  // kOutOfRange for a label without a score.
  virtual void Add(const Tensor& value, const Tensor& label, int64_t rows) = 0;
  virtual double Value() const = 0;  // nan if undefined: no rows, or only one class
  // For the kind CONFUSION, which has no value.
  virtual std::optional<ConfusionMatrix> Confusion() const { return std::nullopt; }
  virtual void Clear() = 0;
  // The collected state, float64.
  virtual Tensor Save() const = 0;
  // Throws kInvalidArgument if `saved` is not the Save of such a metric.
  virtual void Load(const Tensor& saved) = 0;
  // Adds the state saved by another MetricSum. Throws like Load.
  virtual void Merge(const Tensor& saved) = 0;
};
std::unique_ptr<MetricSum> MakeMetricSum(const MetricConfig& config);

// Returns the metrics that are numbers, without CONFUSION.
std::vector<MetricConfig> NumberMetrics(std::vector<MetricConfig> metrics);

// Sums the loss and the metrics of a job.
class MetricSums {
 public:
  // The loss "" means no loss.
  MetricSums(const std::string& loss, const std::vector<MetricConfig>& metrics);

  // The variables that a run must fetch: the loss, then the variables of the metrics, each once.
  const std::vector<std::string>& fetches() const { return fetches_; }
  void Add(std::span<const Tensor> fetched, int64_t rows);
  // The values: 0 is the loss, if there is one; then come the metrics that are numbers.
  size_t size() const { return numbers_.size(); }
  double Value(size_t i) const { return sums_[numbers_[i]]->Value(); }
  std::vector<ConfusionMatrix> Confusions() const;
  void Clear();
  NamedTensors Save() const;
  void Load(const NamedTensors& saved);
  // Merges the sums of several ranks: each rank then has the sums of all. With `keep_on_first`,
  // only rank 0 has them and the other ranks start again from zero, so that Merge can be
  // called again.
  void Merge(const Ranks& ranks, bool keep_on_first = false);

 private:
  size_t Fetch(const std::string& name);

  std::vector<std::string> fetches_;
  std::vector<std::unique_ptr<MetricSum>> sums_;
  std::vector<size_t> value_, label_;  // index in fetches_ for each sum
  std::vector<size_t> numbers_;        // the sums that have a value
};

}  // namespace coracle::inline internal
