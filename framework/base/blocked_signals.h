#pragma once
// BlockedSignals: while it lives, signals of the process go to other threads than this one.

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace coracle {

class BlockedSignals {
 public:
  BlockedSignals() {
    if (alive_++ > 0) return;
    sigset_t all;
    sigfillset(&all);
    for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, own);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~BlockedSignals() {
    if (--alive_ == 0) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  static inline thread_local int alive_ = 0;  // objects of this thread: the outermost acts
  sigset_t before_;
};

}  // namespace coracle
