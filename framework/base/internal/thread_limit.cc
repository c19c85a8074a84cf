#include <coracle/framework/base/internal/thread_limit.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace coracle::inline internal {
namespace {

constexpr int64_t kMillisecond = 1000000;
constexpr int64_t kFirstHold = 20 * kMillisecond, kLongestHold = 2000 * kMillisecond;
// Threads are dropped if more than a quarter of the time is lost, and more than chance explains.
constexpr int64_t kLossAllowed = 4, kLoss = 6 * kMillisecond;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::chrono::nanoseconds WaitedForProcessor(int thread_id) {
  char text[64];
  std::snprintf(text, sizeof text, "/proc/self/task/%d/schedstat", thread_id);
  const int file = ::open(text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t size = ::read(file, text, sizeof text - 1);
  ::close(file);
  text[std::max<ssize_t>(size, 0)] = 0;
  long long ran = 0, waited = 0;  // in nanoseconds; the first two of three fields
  return std::chrono::nanoseconds(std::sscanf(text, "%lld %lld", &ran, &waited) == 2 ? waited : 0);
}

std::chrono::nanoseconds RecentWaiting::Update(std::chrono::nanoseconds waited,
                                               std::chrono::nanoseconds now,
                                               std::chrono::nanoseconds passed) {
  const auto since = now - std::exchange(at_, now);
  auto more = std::max(waited - std::exchange(waited_, waited), std::chrono::nanoseconds::zero());
  if (!std::exchange(known_, true)) return std::chrono::nanoseconds::zero();
  if (since > passed) {
    const double share = static_cast<double>(passed.count()) / static_cast<double>(since.count());
    more =
        std::chrono::nanoseconds(static_cast<int64_t>(share * static_cast<double>(more.count())));
  }
  return more;
}

int ThreadLimit::Lowered(int wanted) {
  const int64_t now = Now();
  int64_t until = until_.load(std::memory_order_relaxed);
  int left_out = left_out_.load(std::memory_order_relaxed);
  // Dropped threads return one at a time, each sooner than the one before; one of the callers
  // restores it.
  if (now >= until && until_.compare_exchange_strong(until, now + hold_.load() / 4)) {
    left_out_.compare_exchange_strong(left_out, std::max(left_out - 1, 0));
    left_out = left_out_.load();
  }
  return std::max(wanted - left_out, 1);
}

void ThreadLimit::Waited(int wanted, std::chrono::nanoseconds time, std::chrono::nanoseconds of) {
  const int64_t before = lost_.load(std::memory_order_relaxed);
  const int64_t lost = std::max<int64_t>(before + time.count() - of.count() / kLossAllowed, 0);
  lost_.store(lost > kLoss ? 0 : lost, std::memory_order_relaxed);
  if (lost <= kLoss) return;
  const int64_t now = Now();
  const int64_t until = until_.load(std::memory_order_relaxed);
  const int64_t hold = hold_.load(std::memory_order_relaxed);
  // The last drop was recent, so the competing program is still there.
  const bool again = hold > 0 && now < until + 2 * hold;
  const int64_t next = again ? std::min(8 * hold, kLongestHold) : kFirstHold;
  hold_.store(next, std::memory_order_relaxed);
  until_.store(now + next, std::memory_order_relaxed);
  left_out_.store(std::clamp(left_out_.load() + 1, 0, wanted - 1));
}

}  // namespace coracle::inline internal
