#pragma once
// SIGTERM and SIGINT, which end a server.

#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace coracle::serve {

// Make one before other threads begin: they must not receive the signals. Until Serve, a signal
// ends the process at once, as it does without an EndSignals.
class EndSignals {
 public:
  EndSignals();
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // From here on, the first signal calls `announce`, and `stop` after `grace` seconds. A second one
  // calls `stop` at once. One more ends the process, and so does the time: if this object still
  // exists `drain` seconds after `stop`, the process ends with status 1 and a message. A thread of
  // this object calls them.
  void Serve(std::function<void()> announce, double grace, std::function<void()> stop,
             double drain);

 private:
  enum class Phase { kLoading, kServing, kGrace, kStopping, kEnd };

  void Wait();
  double SecondsToWait();
  void Receive(int signal);
  void Stop();
  [[noreturn]] void EndUndrained() const;
  [[noreturn]] void EndProcess(int signal) const;

  sigset_t signals_, before_;
  std::mutex mutex_;
  Phase phase_ = Phase::kLoading;
  double grace_ = 0, drain_ = 0;
  std::chrono::steady_clock::time_point phase_end_;  // of kGrace and kStopping
  std::function<void()> announce_, stop_;
  std::thread thread_;
};

}  // namespace coracle::serve
