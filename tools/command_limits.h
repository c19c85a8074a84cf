#pragma once
// --memory_limit and --time_limit for what a command does.

#include <coracle/framework/base/resource_limits.h>
#include <sys/resource.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace coracle::tools {

// Ends the process with FailureCode() when limits, or a run inside of them, are some seconds past
// their time: the last resort where an op goes on for hours, or code does not ask for the time.
class Watchdog {
 public:
  explicit Watchdog(std::shared_ptr<const ResourceLimits> limits);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Watch();

  std::shared_ptr<const ResourceLimits> limits_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

// The limits of a command while this lives: of tensors by ResourceLimits, of what else takes memory
// (programs, texts, lists) by the system, which makes it fail with std::bad_alloc.
class CommandLimits {
 public:
  enum class Time {
    kCommand,  // the time limit is that of the whole command
    kRuns,     // runs of programs are limited by themselves
  };
  explicit CommandLimits(Time time);
  ~CommandLimits();
  CommandLimits(const CommandLimits&) = delete;
  CommandLimits& operator=(const CommandLimits&) = delete;

 private:
  std::optional<rlimit> before_;
  ScopedLimits scoped_;
  Watchdog watchdog_;
};

}  // namespace coracle::tools
