#pragma once
// One version of a model that answers requests: a queue, and workers that run batches of it.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/serve/infer_codec.h>
#include <coracle/serve/metrics.h>
#include <coracle/serve/request_queue.h>
#include <coracle/serve/row_analysis.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace coracle {
inline namespace internal {
class PredictorCore;
}
}  // namespace coracle

namespace coracle::serve {

struct ServeOptions {
  int workers = 1;         // runs of one model at the same time; 1 for a model that keeps a state
  int64_t max_batch = 32;  // rows of a request and of joined requests; 1: nothing is joined
  double max_delay = 0;    // seconds that the oldest request waits for others
  size_t max_queue = 256;  // requests that wait; more are refused
  double time_limit = 0;   // seconds for one request, from its arrival; 0: no limit
  std::optional<int64_t> decode_mb = {};  // most MiB to decode a picture; else as the model says
  CompileOptions compile = {};
  // Ends the first run of a model that is being loaded, when it returns true.
  std::function<bool()> stop_loading = {};
};

class ServedModel {
 public:
  // Loads and compiles the model (LoadInferenceModel), and runs it once on zeros if its shapes
  // allow, so that the first request need not wait for a plan. That run has the time limit of a
  // request, or a minute, and metrics do not count it. Throws Error.
  ServedModel(const std::string& path, std::string name, std::string version,
              const ServeOptions& options, std::shared_ptr<ModelMetrics> metrics);
  ~ServedModel();  // drains
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  // Whether each row of the outputs depends on the same row of the inputs only, by the declared
  // traits of the ops. Then max_batch limits the rows of a request.
  bool has_rows() const { return rows_->always(); }
  // Whether rows of several requests may run together, perhaps only for some shapes.
  bool joins_rows() const {
    return (rows_->always() || rows_->depends_on_shapes()) && options_.max_batch > 1;
  }
  ModelMetrics& metrics() const { return *metrics_; }
  int64_t max_batch() const { return options_.max_batch; }
  std::optional<int64_t> decode_mb() const { return options_.decode_mb; }
  // Answers raw rows. Throws HttpError with status 400 if the preprocessing of the model is
  // not known.
  const PredictorCore& predictor() const;
  // The kind of raw data that the model reads: "picture", "text" or "cells"; "" for none.
  std::string RawRows() const;

  // Waits for the result, until the deadline or the time limit of requests, whichever is earlier;
  // then the request leaves the queue, and a run without other requests ends. Thread-safe. Throws
  // HttpError: 400 for inputs that the model refuses or more rows than max_batch, 503 if the queue
  // is full, the time is over, memory is short or the model drains, 500 if the run failed.
  std::vector<Tensor> Infer(std::vector<Tensor> inputs,
                            Clock::time_point deadline = Clock::time_point::max(),
                            InferTimes* times = nullptr);

  // Refuses new requests, finishes those in the queue, and ends the workers.
  void Drain();

 private:
  struct Worker;

  void Load(const std::string& path);
  void LoadPreprocess(const std::string& path, const InferenceModel& model);
  void WarmUp();
  void StartWorkers();
  void RequireRows(const std::vector<Tensor>& inputs) const;
  int64_t RowsToJoin(const std::vector<Tensor>& inputs, Clock::time_point deadline) const;
  Worker MakeWorker() const;
  void Work(Worker& worker);
  void RunBatch(Worker& worker, const Batch& batch);
  bool RunJoined(Worker& worker, const Batch& batch);
  void RunAlone(Worker& worker, Job& job);
  std::vector<Tensor> RunOnce(Worker& worker, const std::vector<Tensor>& inputs,
                              Clock::time_point end);
  void CountRun(const std::vector<Tensor>& inputs, double seconds);

  const std::string name_, version_;
  const ServeOptions options_;
  const std::shared_ptr<ModelMetrics> metrics_;
  std::vector<Port> inputs_, outputs_;
  std::unique_ptr<RowAnalysis> rows_;
  Scope state_;  // variables that runs change; parameters are part of program_
  std::unique_ptr<PreparedProgram> program_;
  std::unique_ptr<const PredictorCore> predictor_;
  std::string no_predictor_;  // why there is none
  std::unique_ptr<RequestQueue> queue_;
  std::vector<std::thread> workers_;
};

}  // namespace coracle::serve
