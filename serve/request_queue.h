#pragma once
// The requests that wait for a model: a bounded queue, from which workers take batches.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/serve/http_message.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

namespace coracle::serve {

using Clock = std::chrono::steady_clock;

// The time, or time_point::max() if it is further away than the clock counts.
Clock::time_point After(Clock::time_point begin, double seconds);
double SecondsSince(Clock::time_point begin);

// How long a request waited, and how long the run took that answered it.
struct InferTimes {
  double queue_seconds = 0, run_seconds = 0;
};

// A request that waits for its result.
struct Job {
  std::vector<Tensor> inputs;
  int64_t rows = 0;  // of each input; 0: the job runs alone
  Clock::time_point arrival = Clock::now();
  Clock::time_point deadline = Clock::time_point::max();
  std::promise<std::vector<Tensor>> result;
  // For the worker that took it; the client reads `times` after the result.
  bool answered = false;
  InferTimes times;

  void Answer(std::vector<Tensor> tensors);
  void Fail(std::exception_ptr error);
  bool IsLate() const { return deadline < Clock::now(); }
};

using Batch = std::vector<std::shared_ptr<Job>>;

struct QueueOptions {
  size_t max_jobs = 256;  // that wait
  int64_t max_rows = 1;   // of a batch with several jobs
  double max_delay = 0;   // seconds that the oldest job waits for others
  bool joins = false;     // whether a batch may have several jobs
};

// Thread-safe.
class RequestQueue {
 public:
  // Adds the number of jobs that wait to *waiting, which versions that replace each other share.
  RequestQueue(const QueueOptions& options, std::atomic<int64_t>* waiting);

  enum class Pushed { kYes, kFull, kDraining };
  Pushed Push(std::shared_ptr<Job> job);
  // Removes a job whose client has left. False: a worker has it already.
  bool Remove(const std::shared_ptr<Job>& job);
  // Waits for jobs, and takes as many from the front as may run together: their inputs differ in
  // their rows only. Late ones fail. Empty: the queue drains, and no job waits.
  Batch Next();
  // Refuses new jobs. Those that wait are still given to workers.
  void Drain();

 private:
  void TakeFitting(Batch* batch, bool* full);
  void WaitForOthers(std::unique_lock<std::mutex>& lock, Batch* batch, bool* full);

  const QueueOptions options_;
  std::atomic<int64_t>* const waiting_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool draining_ = false;
};

}  // namespace coracle::serve
