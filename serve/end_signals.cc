#include <coracle/framework/base/error.h>
#include <coracle/serve/end_signals.h>
#include <coracle/serve/request_queue.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>

namespace coracle::serve {
namespace {

// Wakes the thread at the end. From another process, it does nothing.
constexpr int kWake = SIGUSR2;

timespec AsTimespec(double seconds) {
  const double whole = std::floor(std::max(seconds, 0.0));
  timespec time = {};
  time.tv_sec = static_cast<time_t>(whole);
  time.tv_nsec = static_cast<decltype(time.tv_nsec)>((std::max(seconds, 0.0) - whole) * 1e9);
  return time;
}

}  // namespace

EndSignals::EndSignals() {
  sigemptyset(&signals_);
  for (int signal : {SIGTERM, SIGINT, kWake}) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  thread_ = std::thread([this] { Wait(); });
}

EndSignals::~EndSignals() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    phase_ = Phase::kEnd;
  }
  pthread_kill(thread_.native_handle(), kWake);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void EndSignals::Serve(std::function<void()> announce, double grace, std::function<void()> stop,
                       double drain) {
  const std::lock_guard<std::mutex> lock(mutex_);
  announce_ = std::move(announce);
  stop_ = std::move(stop);
  grace_ = grace;
  drain_ = drain;
  phase_ = Phase::kServing;
}

void EndSignals::Wait() {
  for (;;) {
    const double seconds = SecondsToWait();
    if (seconds < 0) return;
    const timespec limit = AsTimespec(seconds);
    const int signal = sigtimedwait(&signals_, nullptr, &limit);
    if (signal > 0 && signal != kWake) Receive(signal);
  }
}

// Until the phase ends; below 0: the object does.
double EndSignals::SecondsToWait() {
  constexpr double kForever = 86'400;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (phase_ == Phase::kEnd) return -1;
  if (phase_ != Phase::kGrace && phase_ != Phase::kStopping) return kForever;
  const double seconds = std::chrono::duration<double>(phase_end_ - Clock::now()).count();
  if (seconds > 0) return seconds;
  if (phase_ == Phase::kStopping) EndUndrained();
  Stop();
  return 0;
}

void EndSignals::Stop() {
  phase_ = Phase::kStopping;
  phase_end_ = After(Clock::now(), drain_);
  stop_();
}

void EndSignals::Receive(int signal) {
  const std::lock_guard<std::mutex> lock(mutex_);
  switch (phase_) {
    case Phase::kServing:
      phase_ = Phase::kGrace;
      phase_end_ = After(Clock::now(), grace_);
      announce_();
      return;
    case Phase::kGrace:
      return Stop();
    case Phase::kLoading:
    case Phase::kStopping:
      EndProcess(signal);
    case Phase::kEnd:
      return;
  }
}

void EndSignals::EndUndrained() const {
  LogMessage(MessageLevel::kError,
             fmt::format("{} s after the end of serving, requests or models are still busy; the "
                         "process ends without them",
                         drain_));
  std::_Exit(1);
}

// By the signal, so that the parent sees what ended it.
void EndSignals::EndProcess(int signal) const {
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace coracle::serve
