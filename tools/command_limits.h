#pragma once
// Applies --memory_limit and --time_limit to a command.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/tools/flags.h>
#include <sys/resource.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace coracle::tools {

// The most memory that this process has used, in bytes.
uint64_t PeakMemory();

// Ends the process with FailureCode() when `limits`, or the limits of a run inside them, are
// overdue by some seconds. It is the last resort against an op that runs for hours and against code
// that does not check the time.
class Watchdog {
 public:
  // `seconds` is the time limit for the message; 0: the watchdog does nothing.
  Watchdog(std::shared_ptr<const ResourceLimits> limits, double seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Watch();

  std::shared_ptr<const ResourceLimits> limits_;
  double seconds_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

// The limits of a command, in force during the lifetime of this object. ResourceLimits limits the
// memory of tensors; the system limits all other memory (programs, texts, lists), so that exceeding
// it throws std::bad_alloc.
class CommandLimits {
 public:
  enum class Time {
    kCommand,  // the time limit applies to the whole command
    kRuns,     // each run of a program has its own time limit
  };
  CommandLimits(const LimitFlags& flags, Time time);
  ~CommandLimits();
  CommandLimits(const CommandLimits&) = delete;
  CommandLimits& operator=(const CommandLimits&) = delete;

 private:
  std::optional<rlimit> before_;
  ScopedLimits scoped_;
  Watchdog watchdog_;
};

}  // namespace coracle::tools
