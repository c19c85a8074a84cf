#include <coracle/serve/end_signals.h>
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

using Clock = std::chrono::steady_clock;

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

void EndSignals::Serve(std::function<void()> announce, double grace, std::function<void()> stop) {
  const std::lock_guard<std::mutex> lock(mutex_);
  announce_ = std::move(announce);
  stop_ = std::move(stop);
  grace_ = grace;
  phase_ = Phase::kServing;
}

void EndSignals::Wait() {
  constexpr double kForever = 86'400;
  Clock::time_point stop_at = Clock::time_point::max();
  for (;;) {
    double seconds = kForever;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (phase_ == Phase::kEnd) return;
      if (phase_ == Phase::kGrace) {
        if (stop_at == Clock::time_point::max())
          stop_at = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(grace_));
        seconds = std::chrono::duration<double>(stop_at - Clock::now()).count();
        if (seconds <= 0) {
          phase_ = Phase::kStopping;
          stop_();
          continue;
        }
      }
    }
    const timespec limit = AsTimespec(seconds);
    const int signal = sigtimedwait(&signals_, nullptr, &limit);
    if (signal > 0 && signal != kWake) Receive(signal);
  }
}

void EndSignals::Receive(int signal) {
  const std::lock_guard<std::mutex> lock(mutex_);
  switch (phase_) {
    case Phase::kServing:
      phase_ = Phase::kGrace;
      announce_();
      return;
    case Phase::kGrace:
      phase_ = Phase::kStopping;
      stop_();
      return;
    case Phase::kLoading:
    case Phase::kStopping:
      EndProcess(signal);
    case Phase::kEnd:
      return;
  }
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
