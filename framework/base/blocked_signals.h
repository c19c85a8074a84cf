#pragma once
// BlockedSignals: while it lives, signals of the process go to other threads than this one. (Not
// those that the thread's own mistakes raise.)

#include <csignal>

namespace coracle {

class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace coracle
