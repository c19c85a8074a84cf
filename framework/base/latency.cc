#include <coracle/framework/base/error.h>
#include <coracle/framework/base/latency.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/trace.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace coracle::inline internal {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// The state that the clients share.
class Measurement {
 public:
  Measurement(size_t clients, const LatencyOptions& options)
      : options_(options),
        max_seconds_(options.max_seconds > 0 ? options.max_seconds : 10 * options.seconds),
        all_warm_(static_cast<std::ptrdiff_t>(clients), Start{this}) {}

  // Runs one client. Does not throw: see Result.
  void Run(const std::function<void()>& run) noexcept {
    try {
      WarmUp(run);
    } catch (...) {
      NoteError();
    }
    all_warm_.arrive_and_wait();
    try {
      Time(run);
    } catch (...) {
      NoteError();
    }
  }

  // Called for a client that could not be started.
  void Leave(std::exception_ptr why) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::move(why);
    }
    failed_ = true;
    all_warm_.arrive_and_drop();
  }

  Latencies Result() {
    if (error_) std::rethrow_exception(error_);
    result_.elapsed = end_ - start_;
    result_.processor_seconds = ProcessorSeconds() - processor_;
    std::sort(result_.seconds.begin(), result_.seconds.end());
    return std::move(result_);
  }

 private:
  struct Start {
    Measurement* measurement;
    void operator()() noexcept {
      measurement->processor_ = ProcessorSeconds();
      measurement->start_ = Now();
    }
  };

  void WarmUp(const std::function<void()>& run) {
    const double begin = Now();
    for (int64_t i = 0; i < options_.warm_up_runs || Now() - begin < options_.warm_up; ++i) {
      if (i > 0 && Now() - begin > max_seconds_) return;
      run();
    }
  }

  bool IsOver(double now) const {
    if (failed_) return true;
    const double passed = now - start_;
    return passed >= max_seconds_ || (passed >= options_.seconds && runs_ >= options_.runs);
  }

  void Time(const std::function<void()>& run) {
    std::vector<double> seconds;
    double before = Now();
    if (failed_) return;
    do {
      run();
      const double after = Now();
      seconds.push_back(after - before);
      before = after;
      ++runs_;
    } while (!IsOver(before));
    const std::lock_guard<std::mutex> lock(mutex_);
    end_ = std::max(end_, before);
    result_.seconds.insert(result_.seconds.end(), seconds.begin(), seconds.end());
  }

  void NoteError() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_) error_ = std::current_exception();
    failed_ = true;
  }

  const LatencyOptions options_;
  const double max_seconds_;
  std::barrier<Start> all_warm_;
  double start_ = 0, processor_ = 0;  // set when all are warm
  std::atomic<int64_t> runs_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  // Guarded by mutex_.
  double end_ = 0;
  std::exception_ptr error_;
  Latencies result_;
};

}  // namespace

Latencies MeasureLatency(const std::vector<std::function<void()>>& clients,
                         const LatencyOptions& options) {
  for (const double seconds : {options.seconds, options.max_seconds, options.warm_up}) {
    if (!(seconds >= 0))
      ThrowInvalid(fmt::format("seconds to measure must not be negative, got {}", seconds));
  }
  if (clients.empty()) return {};
  Measurement measurement(clients.size(), options);
  if (clients.size() == 1) {
    measurement.Run(clients[0]);
    return measurement.Result();
  }
  const std::shared_ptr<ResourceLimits> limits = ResourceLimits::Current();
  std::vector<std::thread> threads;
  threads.reserve(clients.size());
  for (size_t i = 0; i < clients.size(); ++i) {
    try {
      threads.emplace_back([&, i] {
        const ScopedLimits scoped(limits);
        Trace::NameThread("client " + std::to_string(i + 1));
        measurement.Run(clients[i]);
      });
    } catch (...) {  // the system gives no more threads, or no memory
      measurement.Leave(std::current_exception());
    }
  }
  for (std::thread& thread : threads) thread.join();
  return measurement.Result();
}

double Percentile(std::vector<double> values, double percent) {
  if (!(percent >= 0 && percent <= 100))
    ThrowInvalid(fmt::format("a percentile must lie in [0, 100], got {}", percent));
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::clamp<double>(rank, 1, double(values.size()))) - 1];
}

}  // namespace coracle::inline internal
