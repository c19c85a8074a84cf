#include <coracle/framework/base/internal/thread_count.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/train/run/exchange_recorder.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

namespace coracle {
namespace {

using Part = StepTimeline::Part;

void Copy(const void* from, void* to, size_t bytes) {
  if (from != to && bytes > 0) std::memmove(to, from, bytes);
}

// Returns the number of bytes that the rank sends.
int64_t Perform(const Exchange& exchange) {
  const auto size = static_cast<int64_t>(SizeOf(exchange.dtype));
  int64_t all = 0;
  for (const int64_t count : exchange.counts) all += count * size;
  if (exchange.kind == Exchange::Kind::kBarrier) return 0;
  const auto own = static_cast<size_t>(exchange.counts[0] * size);
  Copy(exchange.in, exchange.out, own);
  if (exchange.kind == Exchange::Kind::kAllGather) {
    char* to = static_cast<char*>(exchange.out);
    for (size_t rank = 1; rank < exchange.counts.size(); ++rank) {
      to += exchange.counts[rank - 1] * size;
      Copy(exchange.out, to, std::min(own, static_cast<size_t>(exchange.counts[rank] * size)));
    }
    return static_cast<int64_t>(own);
  }
  const size_t per_buffer = exchange.counts.size() / (1 + exchange.more.size());
  for (size_t i = 0; i < exchange.more.size(); ++i)
    Copy(exchange.more[i].in, exchange.more[i].out,
         static_cast<size_t>(exchange.counts[(i + 1) * per_buffer] * size));
  return all;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool ExchangeTheSame(const StepTimeline& a, const StepTimeline& b) {
  return std::equal(a.exchanges.begin(), a.exchanges.end(), b.exchanges.begin(), b.exchanges.end(),
                    [](const Part& x, const Part& y) {
                      return x.kind == y.kind && x.name == y.name && x.bytes == y.bytes;
                    });
}

// The median time of `runs` runs of f, in seconds.
template <class F>
double MedianTime(int runs, F f) {
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return Median(std::move(seconds));
}

// The time to wake a sleeping thread and to be woken by it, as for a thread that calls MPI.
double MeasureHandover() {
  std::mutex mutex;
  std::condition_variable begun, changed;
  int begin = 0, done = 0;
  constexpr int kRuns = 201;
  std::thread other;
  try {
    other = std::thread([&] {
      std::unique_lock lock(mutex);
      for (; done < kRuns; ++done, changed.notify_all())
        begun.wait(lock, [&] { return begin > done; });
    });
  } catch (const std::system_error&) {  // no thread: ranks will not communicate in one either
    return 0;
  }
  const double seconds = MedianTime(kRuns, [&] {
    std::unique_lock lock(mutex);
    ++begin;
    begun.notify_all();
    changed.wait(lock, [&] { return done == begin; });
  });
  other.join();
  return seconds;
}

}  // namespace

class ExchangeRecorder::Pending final : public PendingExchange {
 public:
  Pending(ExchangeRecorder& recorder, size_t number) : recorder_(recorder), number_(number) {}
  void Wait() override { recorder_.step_.exchanges[number_].needed = recorder_.Now(); }

 private:
  ExchangeRecorder& recorder_;
  size_t number_;
};

double ExchangeRecorder::Now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

std::unique_ptr<PendingExchange> ExchangeRecorder::Start(const Exchange& exchange) {
  exchange.Check(size_);
  const double now = Now();
  step_.exchanges.push_back({exchange.kind, exchange.name, Perform(exchange), now, now, false});
  return std::make_unique<Pending>(*this, step_.exchanges.size() - 1);
}

void ExchangeRecorder::BeginStep() {
  step_ = {};
  begin_ = std::chrono::steady_clock::now();
}

void ExchangeRecorder::EndStep(bool keep) {
  step_.seconds = Now();
  if (keep) steps_.push_back(std::move(step_));
}

StepTimeline ExchangeRecorder::Timeline() const {
  StepTimeline timeline = steps_.back();
  const auto median = [&](auto&& value) {
    std::vector<double> values;
    for (const StepTimeline& step : steps_)
      if (ExchangeTheSame(step, timeline)) values.push_back(value(step));
    return Median(std::move(values));
  };
  StepTimeline medians = timeline;
  medians.seconds = median([](const StepTimeline& step) { return step.seconds; });
  for (const StepTimeline& step : steps_)
    if (ExchangeTheSame(step, timeline)) medians.measured.push_back(step.seconds);
  for (size_t i = 0; i < timeline.exchanges.size(); ++i) {
    medians.exchanges[i].begins =
        median([i](const StepTimeline& step) { return step.exchanges[i].begins; });
    medians.exchanges[i].needed =
        median([i](const StepTimeline& step) { return step.exchanges[i].needed; });
  }
  return medians;
}

// Buffers larger than the caches: the exchanged values were written throughout backward and are no
// longer cached.
ExchangeWork MeasureExchangeWork() {
  constexpr int64_t kElements = int64_t{1} << 23;
  constexpr double kBytes = kElements * sizeof(float);
  std::vector<float> own(kElements, 1), message(kElements, 1);
  const auto copy = [](const std::vector<float>& from, std::vector<float>& to) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
  };
  ExchangeWork work;
  work.packing = MedianTime(5,
                            [&] {
                              copy(own, message);
                              copy(message, own);
                            }) /
                 kBytes;
  const simd::BinaryLoop add = simd::FindBinary(simd::Binary::kAdd, simd::Form::kVectorVector);
  work.adding =
      MedianTime(5, [&] { add(own.data(), message.data(), own.data(), kElements); }) / kBytes;
  work.handover = MeasureHandover();
  work.beside_ops = internal::CoresOfNewThreads() > NumThreads();
  return work;
}

}  // namespace coracle
