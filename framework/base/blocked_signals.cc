#include <coracle/framework/base/blocked_signals.h>
#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace coracle::inline internal {
namespace {

thread_local int alive = 0;  // objects on this thread: only the outermost changes the mask

}  // namespace

BlockedSignals::BlockedSignals() {
  if (alive++ > 0) return;
  sigset_t all;
  sigfillset(&all);
  for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, own);
  pthread_sigmask(SIG_BLOCK, &all, &before_);
}

BlockedSignals::~BlockedSignals() {
  if (--alive == 0) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace coracle::inline internal
