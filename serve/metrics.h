#pragma once
// Counters and histograms in Prometheus' text format.
// Source: https://prometheus.io/docs/instrumenting/exposition_formats/

#include <coracle/serve/http_message.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace coracle::serve {

// How often values fell below each bound. Thread-safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void Add(double value);
  // Lines of NAME_bucket, NAME_sum and NAME_count. `labels` is `a="b",c="d"` or "".
  void AppendTo(std::string* text, const std::string& name, const std::string& labels) const;

  static std::vector<double> Seconds();  // 0.1 ms to 10 s
  static std::vector<double> Rows();     // 1 to 1024

 private:
  std::vector<double> bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;  // one more than bounds_
  std::atomic<double> sum_{0};
};

// The counters of one version of a model.
struct ModelMetrics {
  std::atomic<uint64_t>& Requests(RequestEnd end) { return requests[static_cast<size_t>(end)]; }
  uint64_t Requests(RequestEnd end) const { return requests[static_cast<size_t>(end)]; }

  std::array<std::atomic<uint64_t>, kRequestEnds> requests{};  // by how they ended
  std::atomic<uint64_t> batches{0}, rows{0};
  std::atomic<int64_t> queued{0}, running{0};
  Histogram queue_seconds{Histogram::Seconds()}, run_seconds{Histogram::Seconds()},
      request_seconds{Histogram::Seconds()}, batch_rows{Histogram::Rows()};
};

// The metrics of all models that were loaded since the start, and of all answers. Thread-safe.
class MetricsTable {
 public:
  // An answer to any request, also to one that could not be read.
  void CountAnswer(int status);
  std::shared_ptr<ModelMetrics> Of(const std::string& model, const std::string& version);
  // All of them, with the memory of the process.
  std::string Text() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<ModelMetrics>> models_;
  std::map<int, uint64_t> answers_;  // by status
};

}  // namespace coracle::serve
