#include <coracle/framework/base/blocked_signals.h>
#include <coracle/framework/base/internal/spin.h>
#include <coracle/framework/base/internal/thread_limit.h>
#include <coracle/framework/base/internal/thread_pool.h>
#include <coracle/framework/base/trace.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

using Clock = std::chrono::steady_clock;
using PartFunction = void (*)(void*, int);

// A running loop. Threads claim its parts by writing its serial number, which is never reused: a
// thread that comes late finds all parts claimed and leaves the loop alone.
struct alignas(64) Loop {
  std::atomic<bool> taken{false};   // by a caller
  std::atomic<uint64_t> ticket{0};  // serial number * kTicketParts + parts; 0: not open
  std::atomic<PartFunction> part{nullptr};
  std::atomic<void*> context{nullptr};
  alignas(64) std::atomic<uint32_t> left{0};  // unfinished parts, and kCallerSleeps
  std::atomic<uint64_t> claimed[kMaxThreads]{};
};
constexpr uint64_t kTicketParts = 65536;
constexpr uint32_t kCallerSleeps = 1u << 31;
static_assert(kMaxThreads < kTicketParts);

enum WorkerState : int { kBusy, kIdle, kAsleep, kCalled };

struct alignas(64) Worker {
  std::atomic<int> state{kBusy};
  std::atomic<int> thread_id{0};  // the system's id; 0 until the thread has begun
  RecentWaiting waiting;          // only for Watch
};

// The processors of the place that OMP_PROC_BIND and OMP_PLACES assign to a thread, if they are
// set. (The pool's threads do not ask the OpenMP runtime themselves: it would register them, and
// they must not outlive it.)
std::optional<cpu_set_t> PlaceOf(int index) {
  if (omp_get_proc_bind() == omp_proc_bind_false || omp_get_num_places() == 0) return {};
  const int place = index % omp_get_num_places();
  std::vector<int> ids(static_cast<size_t>(omp_get_place_num_procs(place)));
  omp_get_place_proc_ids(place, ids.data());
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int id : ids) CPU_SET(id, &set);
  return set;
}

// Never destroyed, since its threads may outlast static objects.
class Pool {
 public:
  Pool() : spin_(ReadSpinCounts()) {}

  void Run(int threads, int parts, PartFunction part, void* context);

 private:
  // Concurrent loops of different callers; a further caller runs alone.
  static constexpr int kLoops = 8;
  static constexpr Clock::duration kWatch = std::chrono::milliseconds(10);
  static constexpr Clock::duration kStartAgain = std::chrono::milliseconds(500);
  Loop* PopLoop();
  void Open(Loop& loop, int parts, PartFunction part, void* context);
  void Start(int threads);
  void Call(int helpers, int threads);
  void WaitFor(Loop& loop) const;
  void Watch(int wanted);

  void Serve(int index);
  bool HelpAny(int index);
  static int Help(Loop& loop, int own);
  void Rest(Worker& worker) const;

  const SpinCounts spin_;
  ThreadLimit limit_;
  std::atomic<Clock::rep> watched_{0};  // when the waiting times were last read
  std::atomic<bool> watching_{false};
  std::mutex starting_;
  std::atomic<int> started_{1};             // the caller counts as one
  std::atomic<Clock::rep> start_again_{0};  // when to retry starting threads
  std::atomic<uint64_t> serial_{0};
  Loop loops_[kLoops];
  Worker workers_[kMaxThreads];
};

void Pool::Run(int threads, int parts, PartFunction part, void* context) {
  const int now = spin_.yields ? limit_.Of(threads) : threads;
  Loop* loop = now > 1 ? PopLoop() : nullptr;
  if (!loop) {
    for (int i = 0; i < parts; ++i) part(context, i);
    return;
  }
  Start(now);
  Open(*loop, parts, part, context);
  Call(std::min(now, parts) - 1, now);
  if (Help(*loop, 0) < parts) WaitFor(*loop);
  if (spin_.yields) Watch(threads);
  loop->ticket.store(0, std::memory_order_relaxed);
  loop->taken.store(false, std::memory_order_release);
}

Loop* Pool::PopLoop() {
  for (Loop& loop : loops_) {
    if (!loop.taken.load(std::memory_order_relaxed) &&
        !loop.taken.exchange(true, std::memory_order_acquire))
      return &loop;
  }
  return nullptr;
}

void Pool::Open(Loop& loop, int parts, PartFunction part, void* context) {
  loop.part.store(part, std::memory_order_relaxed);
  loop.context.store(context, std::memory_order_relaxed);
  loop.left.store(static_cast<uint32_t>(parts), std::memory_order_relaxed);
  const uint64_t serial = serial_.fetch_add(1, std::memory_order_relaxed) + 1;
  loop.ticket.store(serial * kTicketParts + static_cast<uint64_t>(parts),
                    std::memory_order_release);
}

// If the system refuses more threads, the existing ones do the work for a while.
void Pool::Start(int threads) {
  if (started_.load(std::memory_order_acquire) >= threads) return;
  auto now = [] { return Clock::now().time_since_epoch().count(); };
  if (const Clock::rep again = start_again_.load(); again != 0 && now() < again) return;
  std::lock_guard<std::mutex> lock(starting_);
  const BlockedSignals blocked;
  while (started_.load() < threads) {
    const int index = started_.load();
    try {
      std::thread([this, index, place = PlaceOf(index)] {
        // The new thread has inherited the affinity of the thread that starts it.
        if (place) pthread_setaffinity_np(pthread_self(), sizeof *place, &*place);
        Serve(index);
      }).detach();
      started_.store(index + 1, std::memory_order_release);
    } catch (const std::exception&) {
      start_again_.store(now() + kStartAgain.count());
      return;
    }
  }
}

// Wakes up to `helpers` idle threads among the first `threads` ones.
void Pool::Call(int helpers, int threads) {
  const int end = std::min(threads, started_.load(std::memory_order_relaxed));
  for (int i = 1; i < end && helpers > 0; ++i) {
    std::atomic<int>& state = workers_[i].state;
    int seen = state.load(std::memory_order_relaxed);
    if (seen != kIdle && seen != kAsleep) continue;
    seen = state.exchange(kCalled, std::memory_order_acq_rel);
    if (seen == kAsleep) state.notify_one();
    --helpers;
  }
}

// Runs the unclaimed parts of a loop, beginning with `own`.
int Pool::Help(Loop& loop, int own) {
  const uint64_t ticket = loop.ticket.load(std::memory_order_acquire);
  const int parts = static_cast<int>(ticket % kTicketParts);
  const uint64_t serial = ticket / kTicketParts;
  const PartFunction part = loop.part.load(std::memory_order_relaxed);
  void* context = loop.context.load(std::memory_order_relaxed);
  int helped = 0;
  for (int k = 0; k < parts; ++k) {
    const int i = (own + k) % parts;
    uint64_t last = loop.claimed[i].load(std::memory_order_relaxed);
    // Claiming a part proves that the loop is not over, so the values read above belong to it.
    if (last >= serial ||
        !loop.claimed[i].compare_exchange_strong(last, serial, std::memory_order_acq_rel))
      continue;
    part(context, i);
    ++helped;
    const uint32_t left = loop.left.fetch_sub(1, std::memory_order_acq_rel);
    if (left == (kCallerSleeps | 1)) loop.left.notify_one();
  }
  return helped;
}

void Pool::WaitFor(Loop& loop) const {
  auto over = [&] { return loop.left.load(std::memory_order_acquire) == 0; };
  if (SpinUntil(spin_.for_parts, over)) return;
  uint32_t left = loop.left.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
  while (left != kCallerSleeps) {
    loop.left.wait(left, std::memory_order_acquire);
    left = loop.left.load(std::memory_order_acquire);
  }
}

// Periodically reports to the limit how long threads had to wait for processors: the caller, and
// the one other thread that waited longest, since a loop ends with its slowest part. Short waits of
// many threads do not add up to a delay. Only one of several callers does this at a time.
void Pool::Watch(int wanted) {
  const auto now = Clock::now().time_since_epoch();
  const int started = started_.load(std::memory_order_acquire);
  const Clock::duration period = kWatch * (1 + started / 16);  // reading takes some microseconds
  if (now - Clock::duration(watched_.load(std::memory_order_relaxed)) < period) return;
  if (watching_.exchange(true, std::memory_order_acquire)) return;
  const Clock::rep last = watched_.exchange(now.count(), std::memory_order_relaxed);
  const Clock::duration passed = now - Clock::duration(last);
  thread_local RecentWaiting of_caller;
  const auto own = of_caller.Update(WaitedForProcessor(gettid()), now, passed);
  Clock::duration longest = Clock::duration::zero();
  for (int i = 1; i < started; ++i) {
    const int id = workers_[i].thread_id.load(std::memory_order_relaxed);
    if (id == 0) continue;
    longest = std::max(longest, workers_[i].waiting.Update(WaitedForProcessor(id), now, passed));
  }
  if (last != 0 && passed > Clock::duration::zero()) limit_.Waited(wanted, own + longest, passed);
  watching_.store(false, std::memory_order_release);
}

void Pool::Serve(int index) {
  const BlockedSignals blocked;
  Trace::NameThread("worker " + std::to_string(index));
  Worker& worker = workers_[index];
  worker.thread_id.store(gettid(), std::memory_order_relaxed);
  for (;;) {
    while (HelpAny(index)) {
    }
    // A loop that begins right now may not see that this thread is free, and runs without it.
    worker.state.store(kIdle, std::memory_order_release);
    Rest(worker);
    worker.state.store(kBusy, std::memory_order_relaxed);
  }
}

bool Pool::HelpAny(int index) {
  bool helped = false;
  for (Loop& loop : loops_) {
    if (loop.ticket.load(std::memory_order_relaxed) != 0) helped |= Help(loop, index) > 0;
  }
  return helped;
}

// Returns when the thread is woken.
void Pool::Rest(Worker& worker) const {
  auto called = [&] { return worker.state.load(std::memory_order_acquire) == kCalled; };
  if (SpinUntil(spin_.for_work, called)) return;
  int idle = kIdle;
  if (!worker.state.compare_exchange_strong(idle, kAsleep, std::memory_order_acq_rel)) return;
  while (!called()) worker.state.wait(kAsleep, std::memory_order_acquire);
}

std::atomic<Pool*> pool{nullptr};

// A child process has none of these threads; it starts its own with its first loop.
void ForgetPool() { pool.store(nullptr, std::memory_order_relaxed); }

Pool& ThePool() {
  Pool* present = pool.load(std::memory_order_acquire);
  if (present) return *present;
  static const int at_fork = pthread_atfork(nullptr, nullptr, ForgetPool);
  (void)at_fork;
  auto* made = new Pool;
  if (pool.compare_exchange_strong(present, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *present;
}

}  // namespace

void RunParts(int threads, int parts, PartFunction part, void* context) {
  ThePool().Run(threads, parts, part, context);
}

}  // namespace coracle::inline internal
