#pragma once
// How many threads of the pool to use while other programs compete for the processors.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace coracle::inline internal {

// How long a thread of this process, given by its system id, has been ready to run without a
// processor since it started. Zero if the system does not report it (Linux does in schedstat).
std::chrono::nanoseconds WaitedForProcessor(int thread_id);

// Recent waiting time of a thread, from repeated values of WaitedForProcessor.
class RecentWaiting {
 public:
  // `waited` is the total waiting time up to `now`. Returns the part of it that lies in the last
  // `passed` time: a proportional share if the last call was earlier than that, and zero in the
  // first call.
  std::chrono::nanoseconds Update(std::chrono::nanoseconds waited, std::chrono::nanoseconds now,
                                  std::chrono::nanoseconds passed);

 private:
  bool known_ = false;
  std::chrono::nanoseconds waited_{}, at_{};
};

// If threads wait for processors much of the time, ThreadLimit drops one thread, for a period that
// grows as long as the waiting goes on. Thread-safe.
class ThreadLimit {
 public:
  // The number of threads to use now if `wanted` are wanted; at least 1.
  int Of(int wanted) {
    if (left_out_.load(std::memory_order_relaxed) == 0) return wanted;
    return Lowered(wanted);
  }
  // Reports that loops that wanted `wanted` threads were held up for `time` out of `of`, because
  // threads waited for processors.
  void Waited(int wanted, std::chrono::nanoseconds time, std::chrono::nanoseconds of);

 private:
  int Lowered(int wanted);

  std::atomic<int64_t> lost_{0};   // waiting time, less a share of the elapsed time
  std::atomic<int> left_out_{0};   // number of dropped threads
  std::atomic<int64_t> until_{0};  // when to use one more thread (steady clock, ns)
  std::atomic<int64_t> hold_{0};   // for how long the last thread was dropped, in nanoseconds
};

}  // namespace coracle::inline internal
