#pragma once
// Sums of metrics, batch by batch.

#include <coracle/distribute/ranks.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/job/job.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace coracle {

// The only element of a float32 or float64 tensor, or one of an integer type; `name` is
// for the error.
double ScalarOf(const Tensor& tensor, const std::string& name);

// Sums of one metric over batches.
class MetricSum {
 public:
  virtual ~MetricSum() = default;
  // `value` and `label` are what a run fetched for the config's var and label; a batch weighs as
  // many as its rows. Throws kInvalidArgument for tensors of another form, and kOutOfRange for a
  // label that no score is of.
  virtual void Add(const Tensor& value, const Tensor& label, int64_t rows) = 0;
  virtual double Value() const = 0;  // nan when it is not defined: of no rows, of one class
  virtual void Clear() = 0;
  // All that Add has gathered, float64.
  virtual Tensor Save() const = 0;
  // Throws kInvalidArgument for what no Save of this kind gives.
  virtual void Load(const Tensor& saved) = 0;
  // Adds what Save of another one holds. Throws as Load.
  virtual void Merge(const Tensor& saved) = 0;
};
std::unique_ptr<MetricSum> MakeMetricSum(const MetricConfig& config);

// The loss and the metrics of a job together.
class MetricSums {
 public:
  // Without a loss for "".
  MetricSums(const std::string& loss, const std::vector<MetricConfig>& metrics);

  // What a run must fetch: the loss, then what the metrics need, without repetitions.
  const std::vector<std::string>& fetches() const { return fetches_; }
  void Add(std::span<const Tensor> fetched, int64_t rows);
  size_t size() const { return sums_.size(); }
  double Value(size_t i) const { return sums_[i]->Value(); }  // 0: the loss; then the metrics
  void Clear();
  NamedTensors Save() const;
  void Load(const NamedTensors& saved);
  // Of several ranks: each has what all have gathered. With `keep_on_first` only rank 0 has it, and
  // the others begin anew, so that it can be merged again.
  void Merge(const Ranks& ranks, bool keep_on_first = false);

 private:
  size_t Fetch(const std::string& name);

  std::vector<std::string> fetches_;
  std::vector<std::unique_ptr<MetricSum>> sums_;
  std::vector<size_t> value_, label_;  // of each sum, in fetches_
};

}  // namespace coracle
