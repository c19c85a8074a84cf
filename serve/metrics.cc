#include <coracle/serve/metrics.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>

namespace coracle::serve {
namespace {

std::string EscapedLabel(const std::string& value) {
  std::string text;
  for (char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n')
      text += "\\n";
    else
      text += c;
  }
  return text;
}

void Head(std::string* text, const char* name, const char* type, const char* help) {
  fmt::format_to(std::back_inserter(*text), "# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

uint64_t ResidentBytes() {
  uint64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// By RequestEnd.
constexpr std::array<const char*, kRequestEnds> kEndNames = {"success", "bad_request", "queue_full",
                                                             "timeout", "failure"};

struct Counter {
  const char* name;
  const char* type;
  const char* help;
  std::function<double(const ModelMetrics&)> value;
};

const std::vector<Counter>& Counters() {
  using M = const ModelMetrics&;
  static const std::vector<Counter> counters = {
      {"coracle_batches_total", "counter", "Finished runs of the model.",
       [](M m) { return static_cast<double>(m.batches); }},
      {"coracle_rows_total", "counter", "Rows that these runs computed.",
       [](M m) { return static_cast<double>(m.rows); }},
      {"coracle_queued_requests", "gauge", "Requests in the queue, which wait for a run.",
       [](M m) { return static_cast<double>(m.queued); }},
      {"coracle_running_batches", "gauge", "Runs that are not finished.",
       [](M m) { return static_cast<double>(m.running); }},
  };
  return counters;
}

struct Stage {
  const char* name;
  const char* help;
  const Histogram ModelMetrics::*histogram;
};

const std::vector<Stage>& Stages() {
  static const std::vector<Stage> stages = {
      {"coracle_request_seconds",
       "Seconds from the last byte of a successful request to its answer.",
       &ModelMetrics::request_seconds},
      {"coracle_queue_seconds", "Seconds that a request waited in the queue.",
       &ModelMetrics::queue_seconds},
      {"coracle_run_seconds", "Seconds of one run of the model.", &ModelMetrics::run_seconds},
      {"coracle_batch_rows", "Rows of one run.", &ModelMetrics::batch_rows},
  };
  return stages;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds_.size() + 1)) {}

std::vector<double> Histogram::Seconds() {
  return {1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10};
}
std::vector<double> Histogram::Rows() { return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}; }

void Histogram::Add(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<size_t>(at)];
  sum_.fetch_add(value, std::memory_order_relaxed);
}

void Histogram::AppendTo(std::string* text, const std::string& name,
                         const std::string& labels) const {
  auto out = std::back_inserter(*text);
  uint64_t below = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    fmt::format_to(out, "{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, labels.empty() ? "" : ",",
                   bound, below);
  }
  fmt::format_to(out, "{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels,
                 sum_.load(std::memory_order_relaxed), below);
}

std::shared_ptr<ModelMetrics> MetricsTable::Of(const std::string& model,
                                               const std::string& version) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<ModelMetrics>& metrics = models_[{model, version}];
  if (!metrics) metrics = std::make_shared<ModelMetrics>();
  return metrics;
}

void MetricsTable::CountAnswer(int status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++answers_[status];
}

std::string MetricsTable::Text() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  auto out = std::back_inserter(text);
  const auto labels_of = [](const auto& key) {
    return fmt::format("model=\"{}\",version=\"{}\"", EscapedLabel(key.first),
                       EscapedLabel(key.second));
  };
  Head(&text, "coracle_requests_total", "counter", "Requests to a model, by how they ended.");
  for (const auto& [key, m] : models_) {
    for (size_t end = 0; end < kRequestEnds; ++end)
      fmt::format_to(out, "coracle_requests_total{{{},end=\"{}\"}} {}\n", labels_of(key),
                     kEndNames[end], m->requests[end].load());
  }
  for (const Counter& counter : Counters()) {
    Head(&text, counter.name, counter.type, counter.help);
    for (const auto& [key, m] : models_)
      fmt::format_to(out, "{}{{{}}} {}\n", counter.name, labels_of(key), counter.value(*m));
  }
  for (const Stage& stage : Stages()) {
    Head(&text, stage.name, "histogram", stage.help);
    for (const auto& [key, m] : models_)
      ((*m).*stage.histogram).AppendTo(&text, stage.name, labels_of(key));
  }
  Head(&text, "coracle_http_answers_total", "counter", "HTTP answers, by status.");
  for (const auto& [status, count] : answers_)
    fmt::format_to(out, "coracle_http_answers_total{{status=\"{}\"}} {}\n", status, count);
  Head(&text, "process_resident_memory_bytes", "gauge",
       "Bytes of physical memory that the process uses.");
  fmt::format_to(out, "process_resident_memory_bytes {}\n", ResidentBytes());
  return text;
}

}  // namespace coracle::serve
