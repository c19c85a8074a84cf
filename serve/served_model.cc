#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/serve/served_model.h>
#include <coracle/train/run/predict/predictor_core.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <utility>

namespace coracle::serve {

// A thread's copy of the program, with its own variables.
struct ServedModel::Worker {
  PreparedProgram program;
  Scope scope;
  // Runs end when the clock has passed it. The limits stay the same from run to run, because a
  // program keeps its memory only under the same limits.
  std::shared_ptr<std::atomic<Clock::rep>> end;
  std::shared_ptr<ResourceLimits> limits;
};

namespace {

constexpr double kWarmUpSeconds = 60;  // if requests have no limit
constexpr int64_t kMostPlans = 64;

std::vector<Port> PortsOf(const ProgramDesc& program, const std::vector<std::string>& names) {
  std::vector<Port> ports;
  for (const std::string& name : names) {
    const VarDesc* var = program.Root().FindVar(name);
    if (!var)
      throw Error(ErrorCode::kNotFound, fmt::format("the program has no var {}", Quote(name)));
    if (DatatypeOf(var->dtype()).empty()) {
      throw Error(ErrorCode::kUnimplemented,
                  fmt::format("{} is {}, which the protocol does not have", Quote(name),
                              ToString(var->dtype())));
    }
    ports.push_back({name, var->dtype(), var->shape()});
  }
  return ports;
}

Tensor Joined(const Batch& batch, size_t input) {
  const Tensor& first = batch[0]->inputs[input];
  Shape shape = first.shape();
  shape[0] = 0;
  for (const auto& job : batch) shape[0] += job->rows;
  Tensor joined(first.dtype(), shape);
  auto* to = static_cast<char*>(joined.raw());
  for (const auto& job : batch) {
    const Tensor& part = job->inputs[input];
    if (part.nbytes() > 0) std::memcpy(to, std::as_const(part).raw(), part.nbytes());
    to += part.nbytes();
  }
  return joined;
}

Tensor RowsOf(const Tensor& all, int64_t begin, int64_t rows) {
  Shape shape = all.shape();
  const size_t row_bytes = shape[0] > 0 ? all.nbytes() / static_cast<size_t>(shape[0]) : 0;
  shape[0] = rows;
  Tensor part(all.dtype(), shape);
  if (part.nbytes() > 0) {
    std::memcpy(part.raw(),
                static_cast<const char*>(all.raw()) + static_cast<size_t>(begin) * row_bytes,
                part.nbytes());
  }
  return part;
}

std::exception_ptr Late(const char* when) {
  return std::make_exception_ptr(HttpError(
      503, fmt::format("the time limit of the request passed {}", when), RequestEnd::kTimeout));
}

// The answer to a run that threw.
std::exception_ptr AnswerTo(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kCancelled:
    case ErrorCode::kDeadlineExceeded:
      return Late("while it ran");
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kOutOfRange:
      return std::make_exception_ptr(HttpError(400, error.message()));
    case ErrorCode::kResourceExhausted:
      return std::make_exception_ptr(HttpError(503, error.message(), RequestEnd::kFailure));
    default:
      return std::make_exception_ptr(HttpError(500, error.message()));
  }
}

}  // namespace

ServedModel::ServedModel(const std::string& path, std::string name, std::string version,
                         const ServeOptions& options, std::shared_ptr<ModelMetrics> metrics)
    : name_(std::move(name)),
      version_(std::move(version)),
      options_(options),
      metrics_(std::move(metrics)) {
  Load(path);
  WarmUp();
  queue_ = std::make_unique<RequestQueue>(QueueOptions{.max_jobs = options_.max_queue,
                                                       .max_rows = options_.max_batch,
                                                       .max_delay = options_.max_delay,
                                                       .joins = joins_rows()},
                                          &metrics_->queued);
  StartWorkers();
}

void ServedModel::StartWorkers() {
  try {
    // A state must be the one that the request before has left.
    const int workers = rows_->keeps_state() ? 1 : options_.workers;
    for (int i = 0; i < workers; ++i) {
      auto worker = std::make_shared<Worker>(MakeWorker());
      workers_.emplace_back([this, worker] { Work(*worker); });
    }
  } catch (...) {
    Drain();  // a thread must not be running when it is destroyed
    throw;
  }
}

ServedModel::Worker ServedModel::MakeWorker() const {
  Worker worker{*program_, state_.Clone(), std::make_shared<std::atomic<Clock::rep>>(), nullptr};
  ResourceOptions options;
  options.stop = [end = worker.end] { return Clock::now().time_since_epoch().count() > *end; };
  worker.limits = std::make_shared<ResourceLimits>(options, nullptr);
  return worker;
}

ServedModel::~ServedModel() { Drain(); }

void ServedModel::Load(const std::string& path) {
  const InferenceModel model = LoadInferenceModel(path, state_);
  inputs_ = PortsOf(model.program, model.feed_names);
  outputs_ = PortsOf(model.program, model.fetch_names);
  rows_ = std::make_unique<RowAnalysis>(model.program, inputs_, outputs_, state_);
  CompileOptions compile = options_.compile;
  compile.shape_warnings = false;
  // Each number of rows has a plan of its own.
  if (joins_rows()) {
    const auto plans = static_cast<size_t>(std::min(options_.max_batch, kMostPlans));
    compile.max_plans = std::max(compile.max_plans, plans);
  }
  program_ = std::make_unique<PreparedProgram>(
      Executor(compile).PrepareOwning(model.program, state_, model.feed_names, model.fetch_names));
  LoadPreprocess(path, model);
}

// A bad description concerns only requests with raw rows.
void ServedModel::LoadPreprocess(const std::string& path, const InferenceModel& model) {
  no_predictor_ = "no description of its preprocessing (.preprocess.pbtxt) is next to the model";
  try {
    std::string source;
    const std::string text = FindPreprocess(path, &source);
    if (text.empty()) return;
    predictor_ =
        std::make_unique<const PredictorCore>(model, ParsePreprocess(text, source), RunFeeds());
  } catch (const Error& e) {
    no_predictor_ = e.message();
  }
}

const PredictorCore& ServedModel::predictor() const {
  if (!predictor_) throw HttpError(400, "raw rows cannot be answered: " + no_predictor_);
  return *predictor_;
}

std::string ServedModel::RawRows() const {
  if (!predictor_) return "";
  const PreprocessConfig& config = predictor_->config();
  if (config.picture) return "picture";
  if (config.text) return "text";
  return config.csv ? "cells" : "";
}

void ServedModel::WarmUp() {
  std::vector<Tensor> zeros;
  for (const Port& port : inputs_) {
    Shape shape = port.shape;
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] < 0 && i > 0) return;  // unknown sizes
      if (shape[i] < 0) shape[i] = 1;
    }
    if (port.dtype == DType::kString) return;
    zeros.push_back(Tensor::Zeros(port.dtype, shape));
  }
  Worker worker = MakeWorker();
  ResourceOptions options;
  options.seconds = options_.time_limit > 0 ? options_.time_limit : kWarmUpSeconds;
  options.stop = options_.stop_loading;
  worker.limits = std::make_shared<ResourceLimits>(options, nullptr);
  try {
    RunOnce(worker, zeros, Clock::time_point::max());
  } catch (const Error&) {
    // Zeros need not be good inputs.
  }
}

std::vector<Tensor> ServedModel::Infer(std::vector<Tensor> inputs, Clock::time_point deadline,
                                       InferTimes* times) {
  auto job = std::make_shared<Job>();
  job->inputs = std::move(inputs);
  job->deadline = deadline;
  if (options_.time_limit > 0)
    job->deadline = std::min(deadline, After(job->arrival, options_.time_limit));
  if (has_rows()) RequireRows(job->inputs);
  if (joins_rows()) job->rows = RowsToJoin(job->inputs, job->deadline);
  if (job->IsLate()) std::rethrow_exception(Late("before it began"));
  std::future<std::vector<Tensor>> result = job->result.get_future();
  switch (queue_->Push(job)) {
    case RequestQueue::Pushed::kYes:
      break;
    case RequestQueue::Pushed::kFull:
      throw HttpError(503, fmt::format("the queue of the model {} is full: {} requests wait",
                                       Quote(name_), options_.max_queue));
    case RequestQueue::Pushed::kDraining:
      throw HttpError(503, fmt::format("the model {} is unloading", Quote(name_)));
  }
  if (job->deadline != Clock::time_point::max() &&
      result.wait_until(job->deadline) != std::future_status::ready) {
    if (queue_->Remove(job)) std::rethrow_exception(Late("while it waited"));
    // A worker may have found it late, or ended its run, just now.
    if (result.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      std::rethrow_exception(Late("while it ran"));
  }
  std::vector<Tensor> tensors = result.get();
  if (times) *times = job->times;
  return tensors;
}

// Requires that all inputs have the same number of rows, at most max_batch.
void ServedModel::RequireRows(const std::vector<Tensor>& inputs) const {
  const int64_t rows = inputs[0].shape()[0];
  for (const Tensor& input : inputs) {
    if (input.shape()[0] != rows)
      throw HttpError(400, "the inputs differ in their first dim, the number of rows");
  }
  if (rows > options_.max_batch)
    throw HttpError(400,
                    fmt::format("a request may have {} rows, got {}", options_.max_batch, rows));
}

// The number of rows, if they may be joined with rows of other requests; else 0.
int64_t ServedModel::RowsToJoin(const std::vector<Tensor>& inputs,
                                Clock::time_point deadline) const {
  if (inputs[0].shape().rank() == 0) return 0;
  const int64_t rows = inputs[0].shape()[0];
  const bool equal = std::all_of(inputs.begin(), inputs.end(), [&](const Tensor& input) {
    return input.shape().rank() > 0 && input.shape()[0] == rows;
  });
  return equal && rows <= options_.max_batch && rows_->Joins(inputs, deadline) ? rows : 0;
}

void ServedModel::Drain() {
  queue_->Drain();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ServedModel::Work(Worker& worker) {
  for (;;) {
    const Batch batch = queue_->Next();
    if (batch.empty()) return;
    ++metrics_->running;
    try {
      RunBatch(worker, batch);
    } catch (...) {
      for (const auto& job : batch)
        if (!job->answered) job->Fail(std::make_exception_ptr(HttpError(500, "the run failed")));
    }
    --metrics_->running;
  }
}

void ServedModel::RunBatch(Worker& worker, const Batch& batch) {
  for (const auto& job : batch) {
    job->times.queue_seconds = SecondsSince(job->arrival);
    metrics_->queue_seconds.Add(job->times.queue_seconds);
  }
  if (batch.size() > 1 && RunJoined(worker, batch)) return;
  // A request that fails must not harm the others.
  for (const auto& job : batch) RunAlone(worker, *job);
}

// False: the requests have to run one by one.
bool ServedModel::RunJoined(Worker& worker, const Batch& batch) {
  const Clock::time_point begin = Clock::now();
  // Each request leaves at its own deadline; the run goes on while one of them waits.
  Clock::time_point end = Clock::time_point::min();
  for (const auto& job : batch) end = std::max(end, job->deadline);
  std::vector<std::vector<Tensor>> answers(batch.size());
  try {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) inputs.push_back(Joined(batch, i));
    const std::vector<Tensor> results = RunOnce(worker, inputs, end);
    for (const Tensor& result : results) {
      if (result.shape().rank() == 0 || result.shape()[0] != inputs[0].shape()[0]) return false;
      int64_t first = 0;
      for (size_t j = 0; j < batch.size(); ++j) {
        answers[j].push_back(RowsOf(result, first, batch[j]->rows));
        first += batch[j]->rows;
      }
    }
    CountRun(inputs, SecondsSince(begin));
  } catch (const std::exception&) {
    return false;
  }
  for (size_t j = 0; j < batch.size(); ++j) {
    batch[j]->times.run_seconds = SecondsSince(begin);
    batch[j]->Answer(std::move(answers[j]));
  }
  return true;
}

void ServedModel::RunAlone(Worker& worker, Job& job) {
  if (job.IsLate()) return job.Fail(Late("while it waited"));
  const Clock::time_point begin = Clock::now();
  try {
    std::vector<Tensor> results = RunOnce(worker, job.inputs, job.deadline);
    job.times.run_seconds = SecondsSince(begin);
    CountRun(job.inputs, job.times.run_seconds);
    job.Answer(std::move(results));
  } catch (const Error& error) {
    job.Fail(AnswerTo(error));
  } catch (const std::bad_alloc&) {
    job.Fail(std::make_exception_ptr(HttpError(503, "out of memory", RequestEnd::kFailure)));
  } catch (const std::exception&) {
    job.Fail(std::make_exception_ptr(HttpError(500, "the run failed")));
  }
}

std::vector<Tensor> ServedModel::RunOnce(Worker& worker, const std::vector<Tensor>& inputs,
                                         Clock::time_point end) {
  *worker.end = end.time_since_epoch().count();
  const ScopedRun limited(worker.limits);
  std::vector<Tensor> results;
  for (const Tensor& result : worker.program.Run(worker.scope, inputs))
    results.push_back(result.Clone());
  return results;
}

void ServedModel::CountRun(const std::vector<Tensor>& inputs, double seconds) {
  ++metrics_->batches;
  metrics_->run_seconds.Add(seconds);
  if (inputs.empty() || inputs[0].shape().rank() == 0) return;
  const auto rows = static_cast<uint64_t>(std::max<int64_t>(inputs[0].shape()[0], 0));
  metrics_->rows += rows;
  metrics_->batch_rows.Add(static_cast<double>(rows));
}

}  // namespace coracle::serve
