#include <coracle/tools/command_limits.h>
#include <coracle/tools/command_line.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

// Defined only under sanitizers, which reserve more memory than any limit allows.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace coracle::tools {
namespace {

constexpr double kGrace = 5;  // seconds
constexpr std::chrono::milliseconds kPeriod{500};
// Memory for everything but tensors: code, the threads' stacks, oneDNN.
constexpr uint64_t kProcessBytes = uint64_t{1} << 30;

// Returns the previous limit, or nothing if the limit could not be set.
std::optional<rlimit> LimitProcessMemory(uint64_t bytes) {
  rlimit before = {};
  if (__sanitizer_set_death_callback || bytes > RLIM_INFINITY - kProcessBytes ||
      ::getrlimit(RLIMIT_DATA, &before) != 0)
    return std::nullopt;
  rlimit limit = before;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, bytes + kProcessBytes);
  if (::setrlimit(RLIMIT_DATA, &limit) != 0) return std::nullopt;
  return before;
}

std::shared_ptr<ResourceLimits> LimitsOf(const LimitFlags& flags, CommandLimits::Time time) {
  ResourceOptions options;
  options.memory = MemoryLimitOf(flags);
  if (time == CommandLimits::Time::kCommand) options.seconds = flags.time_limit;
  return std::make_shared<ResourceLimits>(options);
}

}  // namespace

uint64_t PeakMemory() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

Watchdog::Watchdog(std::shared_ptr<const ResourceLimits> limits, double seconds)
    : limits_(std::move(limits)), seconds_(seconds) {
  if (seconds > 0) thread_ = std::thread([this] { Watch(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Watchdog::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (limits_->SecondsOverdue() < kGrace) {
    if (ended_.wait_for(lock, kPeriod, [this] { return end_; })) return;
  }
  std::fprintf(stderr, "coracle: passed the time limit of %g s (--time_limit)\n", seconds_);
  std::_Exit(FailureCode());
}

CommandLimits::CommandLimits(const LimitFlags& flags, Time time)
    : before_(LimitProcessMemory(MemoryLimitOf(flags))),
      scoped_(LimitsOf(flags, time)),
      watchdog_(ResourceLimits::Current(), flags.time_limit) {}

CommandLimits::~CommandLimits() {
  if (before_) ::setrlimit(RLIMIT_DATA, &*before_);
}

}  // namespace coracle::tools
