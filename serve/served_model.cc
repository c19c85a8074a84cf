#include <coracle/distribute/part_values.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/serve/served_model.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <future>

namespace coracle::serve {

// A request that waits for its result.
struct Job {
  std::vector<Tensor> inputs;
  int64_t rows = 0;  // of each input; 0 if the model's rows are not joined
  Clock::time_point arrival = Clock::now();
  Clock::time_point deadline = Clock::time_point::max();
  std::promise<std::vector<Tensor>> result;

  void Answer(std::vector<Tensor> tensors) { result.set_value(std::move(tensors)); }
  void Fail(std::exception_ptr error) { result.set_exception(std::move(error)); }
};

namespace {

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

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

bool HasOpenRows(const std::vector<Port>& ports) {
  return std::all_of(ports.begin(), ports.end(), [](const Port& port) {
    return port.shape.rank() > 0 && port.shape[0] < 0 && port.dtype != DType::kString;
  });
}

bool WritesState(const ProgramDesc& program) {
  for (const std::string& name : PersistableNames(program)) {
    const BlockDesc& root = program.Root();
    for (size_t i = 0; i < root.NumOps(); ++i) {
      for (const Slot& slot : root.op(i).outputs())
        if (std::count(slot.args.begin(), slot.args.end(), name) > 0) return true;
    }
  }
  return false;
}

bool RowsStayApart(const ProgramDesc& program, const std::vector<Port>& inputs,
                   const std::vector<Port>& outputs) {
  if (inputs.empty() || !HasOpenRows(inputs) || !HasOpenRows(outputs) || WritesState(program))
    return false;
  const PartValues parts(program, DefaultOps());
  return std::all_of(outputs.begin(), outputs.end(), [&](const Port& output) {
    const Part& part = parts.Of(output.name);
    return part.kind == PartKind::kRows && part.place == RowPlace{} && !part.ragged;
  });
}

// Whether the jobs' inputs differ in their rows only.
bool SameClass(const Job& a, const Job& b) {
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const Shape &x = a.inputs[i].shape(), &y = b.inputs[i].shape();
    if (x.rank() != y.rank() || !std::equal(x.begin() + 1, x.end(), y.begin() + 1)) return false;
  }
  return true;
}

Tensor Joined(const std::vector<std::shared_ptr<Job>>& batch, size_t input) {
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

// The answer to a run that threw.
std::exception_ptr Answer(const Error& error) {
  int status = 500;
  if (error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kOutOfRange)
    status = 400;
  if (error.code() == ErrorCode::kDeadlineExceeded || error.code() == ErrorCode::kResourceExhausted)
    status = 503;
  return std::make_exception_ptr(HttpError(status, error.message()));
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
  for (int i = 0; i < options_.workers; ++i)
    workers_.emplace_back(&ServedModel::Work, this, Worker{*program_, state_.Clone()});
}

ServedModel::~ServedModel() { Drain(); }

void ServedModel::Load(const std::string& path) {
  const InferenceModel model = LoadInferenceModel(path, state_);
  inputs_ = PortsOf(model.program, model.feed_names);
  outputs_ = PortsOf(model.program, model.fetch_names);
  joins_rows_ = options_.max_batch > 1 && RowsStayApart(model.program, inputs_, outputs_);
  CompileOptions compile = options_.compile;
  compile.shape_warnings = false;
  program_ = std::make_unique<PreparedProgram>(
      Executor(compile).PrepareOwning(model.program, state_, model.feed_names, model.fetch_names));
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
  Worker worker{*program_, state_.Clone()};
  try {
    RunOnce(worker, zeros, 0);
  } catch (const Error&) {
    // Zeros need not be good inputs.
  }
}

std::vector<Tensor> ServedModel::Infer(std::vector<Tensor> inputs) {
  auto job = std::make_shared<Job>();
  job->inputs = std::move(inputs);
  if (joins_rows_) {
    job->rows = job->inputs[0].shape()[0];
    for (const Tensor& input : job->inputs) {
      if (input.shape()[0] != job->rows)
        throw HttpError(400, "the inputs differ in their first dim, the number of rows");
    }
    if (job->rows > options_.max_batch) {
      throw HttpError(
          400, fmt::format("a request may have {} rows, got {}", options_.max_batch, job->rows));
    }
  }
  if (options_.time_limit > 0) {
    job->deadline = job->arrival + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(options_.time_limit));
  }
  std::future<std::vector<Tensor>> result = job->result.get_future();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (draining_) throw HttpError(503, fmt::format("the model {} is unloading", Quote(name_)));
    if (queue_.size() >= options_.max_queue) {
      throw HttpError(503, fmt::format("the queue of the model {} is full: {} requests wait",
                                       Quote(name_), queue_.size()));
    }
    queue_.push_back(job);
    ++metrics_->queued;
  }
  arrived_.notify_one();
  return result.get();
}

void ServedModel::Drain() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    draining_ = true;
  }
  arrived_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ServedModel::Work(Worker worker) {
  for (;;) {
    const std::vector<std::shared_ptr<Job>> batch = NextBatch();
    if (batch.empty()) return;
    RunBatch(worker, batch);
  }
}

// Empty: the model drains, and no request waits.
std::vector<std::shared_ptr<Job>> ServedModel::NextBatch() {
  std::unique_lock<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Job>> batch;
  while (batch.empty()) {
    arrived_.wait(lock, [&] { return draining_ || !queue_.empty(); });
    if (queue_.empty()) return {};
    Collect(lock, &batch);
  }
  return batch;
}

// Takes requests of one class from the front of the queue, in their order, as many as fit.
void ServedModel::Collect(std::unique_lock<std::mutex>& lock,
                          std::vector<std::shared_ptr<Job>>* batch) {
  int64_t rows = 0;
  bool full = false;
  const auto take = [&] {
    while (!queue_.empty() && !full) {
      const std::shared_ptr<Job> next = queue_.front();
      if (next->deadline < Clock::now()) {
        next->Fail(std::make_exception_ptr(
            HttpError(503, "the time limit of the request passed while it waited")));
      } else if (batch->empty() || (joins_rows_ && SameClass(*batch->front(), *next) &&
                                    rows + next->rows <= options_.max_batch)) {
        rows += next->rows;
        batch->push_back(next);
      } else {
        full = true;
        break;
      }
      queue_.pop_front();
      --metrics_->queued;
    }
    full = full || !joins_rows_ || rows >= options_.max_batch;
  };
  take();
  if (batch->empty() || full || options_.max_delay <= 0) return;
  const Clock::time_point until =
      batch->front()->arrival + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(options_.max_delay));
  while (!full && !draining_ &&
         arrived_.wait_until(lock, until, [&] { return draining_ || !queue_.empty(); }))
    take();
}

void ServedModel::RunBatch(Worker& worker, const std::vector<std::shared_ptr<Job>>& batch) {
  for (const auto& job : batch) metrics_->queue_seconds.Add(SecondsSince(job->arrival));
  ++metrics_->running;
  if (batch.size() == 1 || !RunJoined(worker, batch)) {
    // A request that fails must not harm the others.
    for (const auto& job : batch) RunAlone(worker, *job);
  }
  --metrics_->running;
}

bool ServedModel::RunJoined(Worker& worker, const std::vector<std::shared_ptr<Job>>& batch) {
  std::vector<std::vector<Tensor>> answers(batch.size());
  try {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) inputs.push_back(Joined(batch, i));
    const std::vector<Tensor> results = RunOnce(worker, inputs, options_.time_limit);
    for (const Tensor& result : results) {
      if (result.shape().rank() == 0 || result.shape()[0] != inputs[0].shape()[0]) return false;
      int64_t begin = 0;
      for (size_t j = 0; j < batch.size(); ++j) {
        answers[j].push_back(RowsOf(result, begin, batch[j]->rows));
        begin += batch[j]->rows;
      }
    }
  } catch (const std::exception&) {
    return false;
  }
  for (size_t j = 0; j < batch.size(); ++j) batch[j]->Answer(std::move(answers[j]));
  return true;
}

void ServedModel::RunAlone(Worker& worker, Job& job) {
  try {
    double seconds = 0;
    if (job.deadline != Clock::time_point::max()) {
      seconds = std::chrono::duration<double>(job.deadline - Clock::now()).count();
      if (seconds <= 0) throw HttpError(503, "the time limit of the request has passed");
    }
    job.Answer(RunOnce(worker, job.inputs, seconds));
  } catch (const HttpError&) {
    job.Fail(std::current_exception());
  } catch (const Error& error) {
    job.Fail(Answer(error));
  } catch (const std::exception&) {
    job.Fail(std::make_exception_ptr(HttpError(500, "the run failed")));
  }
}

std::vector<Tensor> ServedModel::RunOnce(Worker& worker, const std::vector<Tensor>& inputs,
                                         double seconds) {
  const Clock::time_point begin = Clock::now();
  const ScopedRun limited(std::make_shared<ResourceLimits>(ResourceOptions{.seconds = seconds}));
  std::vector<Tensor> results;
  for (const Tensor& result : worker.program.Run(worker.scope, inputs))
    results.push_back(result.Clone());
  ++metrics_->batches;
  metrics_->run_seconds.Add(SecondsSince(begin));
  if (!inputs.empty() && inputs[0].shape().rank() > 0) {
    const auto rows = static_cast<uint64_t>(std::max<int64_t>(inputs[0].shape()[0], 0));
    metrics_->rows += rows;
    metrics_->batch_rows.Add(static_cast<double>(rows));
  }
  return results;
}

}  // namespace coracle::serve
