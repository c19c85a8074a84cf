#include <coracle/framework/base/internal/spin.h>
#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>

namespace coracle::inline internal {
namespace {

// The pauses between the loops of a training step are shorter than this; waking a sleeping thread
// takes tens of microseconds.
constexpr double kWorkSeconds = 300e-6;
// The parts of a loop usually take about equally long. If one takes longer, a sleeping caller
// leaves its processor to the thread that it waits for.
constexpr double kPartSeconds = 200e-6;
constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

// Takes the fastest of a few trials, since the thread may lose its processor during one.
double SecondsOfPause() {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 200;
  double least = 1;
  for (int trial = 0; trial < 5; ++trial) {
    const auto begin = Clock::now();
    for (int i = 0; i < kRounds; ++i) Pause();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return std::max(least / kRounds, 1e-10);
}

// GOMP_SPINCOUNT is a number with an optional suffix k, M, G or T, or INFINITE or INFINITY. Returns
// -1 for other texts.
int64_t ParseSpinCount(const char* text) {
  if (!strcasecmp(text, "infinite") || !strcasecmp(text, "infinity")) return kForever;
  char* end = nullptr;
  const double count = std::strtod(text, &end);
  if (end == text || !(count >= 0)) return -1;
  double unit = 1;
  if (*end == 'k' || *end == 'K') unit = 1e3;
  if (*end == 'm' || *end == 'M') unit = 1e6;
  if (*end == 'g' || *end == 'G') unit = 1e9;
  if (*end == 't' || *end == 'T') unit = 1e12;
  return static_cast<int64_t>(std::min(count * unit, 9e18));
}

}  // namespace

SpinCounts ReadSpinCounts() {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  const char* count = std::getenv("GOMP_SPINCOUNT");
  const bool active = policy && !strcasecmp(policy, "active");
  if (count) {
    if (const int64_t n = ParseSpinCount(count); n >= 0) return {n, n, !active};
  }
  if (active) return {kForever, kForever, false};
  if (policy && !strcasecmp(policy, "passive")) return {0, 0, true};
  const double pause = SecondsOfPause();
  return {static_cast<int64_t>(kWorkSeconds / pause), static_cast<int64_t>(kPartSeconds / pause),
          true};
}

}  // namespace coracle::inline internal
