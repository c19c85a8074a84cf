#include <coracle/train/run/stop_signal.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

namespace coracle::inline internal {
namespace {

std::atomic<int> stop_signal{0};
std::atomic<bool> snapshot_requested{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "set by a signal handler");

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
std::array<struct sigaction, kSignals.size()> old_actions;

std::atomic<bool> terminal_changed{false};
termios terminal_before;

// A background process would be stopped if it changed the terminal.
bool OwnsTerminal() { return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }

// Calls only functions that are safe in a signal handler.
void RestoreTerminal() {
  if (terminal_changed.exchange(false) && OwnsTerminal())
    ::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

void OnStop(int signal) {
  const int error = errno;  // the interrupted code may be about to read it
  stop_signal.store(signal);
  RestoreTerminal();
  // The second signal goes to the handler installed before the job. If the signal was ignored
  // before, it ends the process instead.
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] != signal) continue;
    struct sigaction usual = old_actions[i];
    if (usual.sa_handler == SIG_IGN) usual.sa_handler = SIG_DFL;
    sigaction(signal, &usual, nullptr);
  }
  errno = error;
}

void OnSnapshot(int) { snapshot_requested.store(true); }

}  // namespace

StopSignal::StopSignal(const SignalConfig& config) {
  stop_signal.store(0);
  snapshot_requested.store(false);
  const std::array<SignalEffect, kSignals.size()> effects = {config.interrupt, config.terminate,
                                                             config.hangup};
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = effects[i] == SignalEffect::kStop       ? OnStop
                        : effects[i] == SignalEffect::kSnapshot ? OnSnapshot
                                                                : SIG_IGN;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(kSignals[i], &action, &old_actions[i]);
  }
}

StopSignal::~StopSignal() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_actions[i], nullptr);
}

bool StopSignal::requested() const { return signal() != 0; }

int StopSignal::signal() const { return stop_signal.load(std::memory_order_relaxed); }

QuietControlKeys::QuietControlKeys(bool wanted) {
  if (!wanted || !OwnsTerminal() || ::tcgetattr(STDIN_FILENO, &terminal_before) != 0) return;
  termios quiet = terminal_before;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHOCTL);
  terminal_changed.store(::tcsetattr(STDIN_FILENO, TCSANOW, &quiet) == 0);
}

QuietControlKeys::~QuietControlKeys() { RestoreTerminal(); }

bool StopSignal::ConsumeSnapshotRequest() { return snapshot_requested.exchange(false); }

}  // namespace coracle::inline internal
