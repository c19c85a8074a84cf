#pragma once
// A call of oneDNN. It computes on the calling thread only: ParallelFor distributes parts of the
// work over several threads, each of which calls oneDNN for its part, so that no second thread pool
// competes with ours.

#include <coracle/framework/base/blocked_signals.h>

#include <atomic>

namespace coracle::onednn {

// Number of active calls. Tests that count allocations use it to exclude oneDNN's own ones.
inline std::atomic<int> calls_under_way{0};

// Held while a thread creates or runs descriptors; both query the number of threads.
class Scope {
 public:
  Scope();
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  int threads_;  // OpenMP setting of the calling thread
};

// A Scope for matrix products. oneDNN's kernels for these point the stack pointer into a heap
// buffer, so that the frame of a signal handler would overwrite the memory before it. Signals are
// therefore blocked in the thread.
class GemmScope {
 private:
  BlockedSignals blocked_;
  Scope scope_;
};

}  // namespace coracle::onednn
