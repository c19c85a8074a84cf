#pragma once
// One version of a model that answers requests: a bounded queue, and workers that join the requests
// in it to batches.

#include <coracle/executor/executor.h>
#include <coracle/serve/infer_codec.h>
#include <coracle/serve/metrics.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace coracle::serve {

using Clock = std::chrono::steady_clock;

struct ServeOptions {
  int workers = 1;         // runs of one model at the same time
  int64_t max_batch = 32;  // rows that are joined to one run; 1: requests are not joined
  double max_delay = 0;    // seconds that the oldest request waits for others
  size_t max_queue = 256;  // requests that wait; more are refused
  double time_limit = 0;   // seconds for one request, from its arrival; 0: no limit
  CompileOptions compile = {};
};

// The result of a request, in the future.
struct Job;

class ServedModel {
 public:
  // Loads and compiles the model (LoadInferenceModel), and runs it once on zeros if its shapes
  // allow, so that the first request need not wait for a plan. Throws Error.
  ServedModel(const std::string& path, std::string name, std::string version,
              const ServeOptions& options, std::shared_ptr<ModelMetrics> metrics);
  ~ServedModel();  // drains
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  // Whether rows of several requests may run together: each row of the outputs depends on the same
  // row of the inputs only, by the declared traits of the ops.
  bool joins_rows() const { return joins_rows_; }
  ModelMetrics& metrics() const { return *metrics_; }

  // Waits for the result. Thread-safe. Throws HttpError: 400 for inputs that the model refuses or
  // more rows than max_batch, 503 if the queue is full, the time is over or the model drains, 500
  // for a run that failed.
  std::vector<Tensor> Infer(std::vector<Tensor> inputs);

  // Refuses new requests, finishes those in the queue, and ends the workers.
  void Drain();

 private:
  struct Worker {
    PreparedProgram program;
    Scope scope;
  };

  void Load(const std::string& path);
  void WarmUp();
  void Work(Worker worker);
  std::vector<std::shared_ptr<Job>> NextBatch();
  void Collect(std::unique_lock<std::mutex>& lock, std::vector<std::shared_ptr<Job>>* batch);
  void RunBatch(Worker& worker, const std::vector<std::shared_ptr<Job>>& batch);
  bool RunJoined(Worker& worker, const std::vector<std::shared_ptr<Job>>& batch);
  void RunAlone(Worker& worker, Job& job);
  std::vector<Tensor> RunOnce(Worker& worker, const std::vector<Tensor>& inputs, double seconds);

  const std::string name_, version_;
  const ServeOptions options_;
  const std::shared_ptr<ModelMetrics> metrics_;
  std::vector<Port> inputs_, outputs_;
  bool joins_rows_ = false;
  Scope state_;
  std::unique_ptr<PreparedProgram> program_;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool draining_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace coracle::serve
