#pragma once
// A call of oneDNN. It computes on the calling thread alone: ParallelFor hands parts of the work to
// several threads, each of which calls oneDNN for its part, so that no second pool of threads
// competes with ours.

#include <coracle/framework/base/blocked_signals.h>

#include <atomic>

namespace coracle::onednn {

// Calls under way. oneDNN's own allocations are its affair: tests that count allocations ask.
inline std::atomic<int> calls_under_way{0};

// Lives while the thread makes descriptors or runs them; both ask for the number of threads.
class Scope {
 public:
  Scope();
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  int threads_;  // the calling thread's setting of OpenMP
};

// A Scope in which a matrix product is computed. oneDNN's kernels for that let the stack pointer
// point into a buffer on the heap: the frame of a signal handler would overwrite what lies before
// it. So no signal reaches the thread meanwhile.
class GemmScope {
 private:
  BlockedSignals blocked_;
  Scope scope_;
};

}  // namespace coracle::onednn
