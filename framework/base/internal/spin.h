#pragma once
// Waiting for another thread, at first without giving up the processor.

#include <cstdint>

namespace coracle::inline internal {

// The number of Pause() rounds that a thread waits before it sleeps.
struct SpinCounts {
  int64_t for_work = 0;   // for a thread of the pool without work
  int64_t for_parts = 0;  // for a caller whose loop is still running in other threads
  bool yields = true;     // whether the pool gives way to other programs
};

// The counts for this process. OMP_WAIT_POLICY and GOMP_SPINCOUNT have the same meaning as in GCC's
// OpenMP; without them the counts correspond to fixed times.
SpinCounts ReadSpinCounts();

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// Waits for at most `rounds` rounds until done() is true; returns done().
template <class Done>
bool SpinUntil(int64_t rounds, Done&& done) {
  for (int64_t i = 0; i < rounds; ++i) {
    if (done()) return true;
    Pause();
  }
  return done();
}

}  // namespace coracle::inline internal
