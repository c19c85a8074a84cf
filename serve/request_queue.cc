#include <coracle/serve/request_queue.h>

#include <algorithm>
#include <utility>

namespace coracle::serve {
namespace {

// Whether the jobs may run together: their inputs differ in their rows only.
bool SameClass(const Job& a, const Job& b) {
  if (a.rows == 0 || b.rows == 0) return false;
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const Shape &x = a.inputs[i].shape(), &y = b.inputs[i].shape();
    if (x.rank() != y.rank() || !std::equal(x.begin() + 1, x.end(), y.begin() + 1)) return false;
  }
  return true;
}

int64_t RowsOf(const Batch& batch) {
  int64_t rows = 0;
  for (const auto& job : batch) rows += job->rows;
  return rows;
}

}  // namespace

Clock::time_point After(Clock::time_point begin, double seconds) {
  constexpr double kCenturies = 1e10;
  if (!(seconds < kCenturies)) return Clock::time_point::max();
  return begin + std::chrono::duration_cast<Clock::duration>(
                     std::chrono::duration<double>(std::max(seconds, 0.0)));
}

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Job::Answer(std::vector<Tensor> tensors) {
  answered = true;
  result.set_value(std::move(tensors));
}

void Job::Fail(std::exception_ptr error) {
  answered = true;
  result.set_exception(std::move(error));
}

RequestQueue::RequestQueue(const QueueOptions& options, std::atomic<int64_t>* waiting)
    : options_(options), waiting_(waiting) {}

RequestQueue::Pushed RequestQueue::Push(std::shared_ptr<Job> job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (draining_) return Pushed::kDraining;
    if (jobs_.size() >= options_.max_jobs) return Pushed::kFull;
    jobs_.push_back(std::move(job));
    ++*waiting_;
  }
  arrived_.notify_one();
  return Pushed::kYes;
}

bool RequestQueue::Remove(const std::shared_ptr<Job>& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find(jobs_.begin(), jobs_.end(), job);
  if (found == jobs_.end()) return false;
  jobs_.erase(found);
  --*waiting_;
  return true;
}

Batch RequestQueue::Next() {
  std::unique_lock<std::mutex> lock(mutex_);
  Batch batch;
  while (batch.empty()) {
    arrived_.wait(lock, [&] { return draining_ || !jobs_.empty(); });
    if (jobs_.empty()) return {};
    bool full = false;
    TakeFitting(&batch, &full);
    if (!batch.empty() && !full) WaitForOthers(lock, &batch, &full);
  }
  // The notice of a job that did not fit may have come to this thread only, which passes it on.
  if (!jobs_.empty()) arrived_.notify_one();
  return batch;
}

// Takes jobs from the front of the queue, in their order.
void RequestQueue::TakeFitting(Batch* batch, bool* full) {
  int64_t rows = RowsOf(*batch);
  while (!jobs_.empty() && !*full) {
    const std::shared_ptr<Job>& next = jobs_.front();
    if (next->IsLate()) {
      next->Fail(std::make_exception_ptr(HttpError(
          503, "the time limit of the request passed while it waited", RequestEnd::kTimeout)));
    } else if (batch->empty() || (options_.joins && SameClass(*batch->front(), *next) &&
                                  rows + next->rows <= options_.max_rows)) {
      rows += next->rows;
      batch->push_back(next);
    } else {
      *full = true;
      return;
    }
    jobs_.pop_front();
    --*waiting_;
  }
  *full = *full || !options_.joins || rows == 0 || rows >= options_.max_rows;
}

// A job spends at most half of its time waiting for others.
void RequestQueue::WaitForOthers(std::unique_lock<std::mutex>& lock, Batch* batch, bool* full) {
  Clock::time_point until = After(batch->front()->arrival, options_.max_delay);
  while (!*full && !draining_) {
    for (const auto& job : *batch) {
      if (job->deadline != Clock::time_point::max())
        until = std::min(until, job->arrival + (job->deadline - job->arrival) / 2);
    }
    if (!arrived_.wait_until(lock, until, [&] { return draining_ || !jobs_.empty(); })) return;
    TakeFitting(batch, full);
  }
}

void RequestQueue::Drain() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    draining_ = true;
  }
  arrived_.notify_all();
}

}  // namespace coracle::serve
