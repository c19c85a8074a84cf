#pragma once
// Waiting for another thread, at first without giving up the processor.

#include <cstdint>

namespace coracle::internal {

// How many rounds of Pause() a thread waits before it sleeps.
struct SpinCounts {
  int64_t for_work = 0;   // of a thread of the pool that has none
  int64_t for_parts = 0;  // of a caller whose loop is under way in other threads
  bool yields = true;     // whether the pool makes way for other programs
};

// Of this process. OMP_WAIT_POLICY and GOMP_SPINCOUNT mean what they mean to GCC's OpenMP; without
// them the counts are those of fixed times.
SpinCounts ReadSpinCounts();

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// Waits until done() is true, for so many rounds at most; returns done().
template <class Done>
bool SpinUntil(int64_t rounds, Done&& done) {
  for (int64_t i = 0; i < rounds; ++i) {
    if (done()) return true;
    Pause();
  }
  return done();
}

}  // namespace coracle::internal
