#pragma once
// How many threads of the pool to use while other programs want the processors too.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace coracle::internal {

// How long a thread of this process, by its id of the system, has been ready to run without getting
// a processor since it started. Nothing where the system does not tell (it is Linux's schedstat).
std::chrono::nanoseconds WaitedForProcessor(int thread_id);

// How long a thread has waited lately, from what WaitedForProcessor says of it now and then.
class RecentWaiting {
 public:
  // `waited` in all until `now`: returns how much of it lies in the time `passed` before `now`.
  // That is a share where the last call was earlier than that, and nothing at the first call.
  std::chrono::nanoseconds Update(std::chrono::nanoseconds waited, std::chrono::nanoseconds now,
                                  std::chrono::nanoseconds passed);

 private:
  bool known_ = false;
  std::chrono::nanoseconds waited_{}, at_{};
};

// When threads have to wait for processors for much of the time, one thread fewer is used, for a
// while that grows as long as this goes on. Safe for use from several threads.
class ThreadLimit {
 public:
  // Of `wanted` threads, those to use now; at least 1.
  int Of(int wanted) {
    if (left_out_.load(std::memory_order_relaxed) == 0) return wanted;
    return Lowered(wanted);
  }
  // Loops that wanted so many threads were held up for `time`, of `of` that passed, since threads
  // waited for processors.
  void Waited(int wanted, std::chrono::nanoseconds time, std::chrono::nanoseconds of);

 private:
  int Lowered(int wanted);

  std::atomic<int64_t> lost_{0};   // time waited, less a share of the time that passed
  std::atomic<int> left_out_{0};   // threads that are not used
  std::atomic<int64_t> until_{0};  // when to use one more, nanoseconds of the steady clock
  std::atomic<int64_t> hold_{0};   // how long the last one was left out, nanoseconds
};

}  // namespace coracle::internal
