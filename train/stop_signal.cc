#include <coracle/train/stop_signal.h>

#include <atomic>
#include <csignal>

namespace coracle {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");
struct sigaction old_int, old_term;

void OnSignal(int signal) {
  stop_requested.store(true);
  // A second one takes its usual course.
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(signal, &usual, nullptr);
}

}  // namespace

StopSignal::StopSignal() {
  stop_requested.store(false);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int);
  sigaction(SIGTERM, &action, &old_term);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &old_int, nullptr);
  sigaction(SIGTERM, &old_term, nullptr);
}

bool StopSignal::requested() const { return stop_requested.load(std::memory_order_relaxed); }

}  // namespace coracle
