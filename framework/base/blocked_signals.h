#pragma once
// BlockedSignals: during its lifetime, signals sent to the process go to other threads than this
// one. Signals raised by the thread's own faults are not blocked.

#include <csignal>

namespace coracle::inline internal {

class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace coracle::inline internal
