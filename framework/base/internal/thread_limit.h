#pragma once
// How many threads of the pool to use while other programs want the processors too.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace coracle::internal {

// When threads lose their processors in the middle of loops or get none for them, one thread fewer
// is used, for a while that grows as long as this goes on. Safe for use from several threads.
class ThreadLimit {
 public:
  // Of `wanted` threads, those to use now; at least 1.
  int Of(int wanted) {
    if (left_out_.load(std::memory_order_relaxed) == 0) return wanted;
    return Lowered(wanted);
  }
  // A loop that wanted so many threads waited for one that had lost its processor, for `time` of
  // the time that it took.
  void Stalled(int wanted, std::chrono::nanoseconds time, std::chrono::nanoseconds of);
  // A loop had help from another thread.
  void Helped() {
    if (missed_.load(std::memory_order_relaxed) != 0) missed_.store(0, std::memory_order_relaxed);
  }
  // A loop was over, after so long, before any of the threads that it called got a processor.
  void Missed(int wanted, std::chrono::nanoseconds time);

 private:
  int Lowered(int wanted);

  std::atomic<int64_t> last_stall_{0};  // when, nanoseconds of the steady clock
  std::atomic<int64_t> lost_{0};        // time of stalls, less a share of the time between them
  std::atomic<int> left_out_{0};        // threads that are not used
  std::atomic<int64_t> until_{0};       // when to use one more, nanoseconds of the steady clock
  std::atomic<int64_t> hold_{0};        // how long the last one was left out, nanoseconds
  std::atomic<int64_t> missed_{0};      // time of loops without help since the last one with help
};

}  // namespace coracle::internal
