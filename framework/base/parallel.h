#pragma once
// ParallelFor: the one way in which Coracle's loops use several threads. They are those of a pool
// of its own, which makes way for other programs; oneDNN is called for parts of the work.

#include <cstdint>
#include <type_traits>

namespace coracle {

// Threads that a ParallelFor may use. Until set: OMP_NUM_THREADS, or as many as there are cores and
// the process's CPU quota allows. Process-wide.
int NumThreads();
void SetNumThreads(int n);

namespace internal {
void ParallelForRange(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t),
                      void* context);
}

// Calls body(begin, end) on ranges of about equal size that cover [0, n), at most n / grain of them
// (rounded up) and one for each thread. The split depends only on n, grain and NumThreads(). Nested
// calls run serially. An exception thrown by body is rethrown here (one of them, when several are).
// Allocates nothing.
template <class Body>
void ParallelFor(int64_t n, int64_t grain, Body&& body) {
  if (n <= 0) return;
  if (n <= grain) {
    body(int64_t{0}, n);
    return;
  }
  using Fn = std::remove_reference_t<Body>;
  internal::ParallelForRange(
      n, grain,
      [](void* context, int64_t begin, int64_t end) { (*static_cast<Fn*>(context))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace coracle
