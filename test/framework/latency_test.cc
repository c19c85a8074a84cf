#include <coracle/framework/base/error.h>
#include <coracle/framework/base/latency.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

namespace coracle::latency_test {

using std::chrono::milliseconds;

TEST(Latency, WarmsUpAndThenTimesEachRun) {
  int runs = 0;
  const Latencies result =
      MeasureLatency({[&] { std::this_thread::sleep_for(milliseconds(++runs <= 3 ? 50 : 2)); }},
                     {.seconds = 0.05, .runs = 10, .warm_up = 0, .warm_up_runs = 3});
  ASSERT_GE(result.seconds.size(), 10u);
  EXPECT_EQ(result.seconds.size() + 3, static_cast<size_t>(runs));
  EXPECT_TRUE(std::is_sorted(result.seconds.begin(), result.seconds.end()));
  EXPECT_GE(result.seconds.front(), 0.002);
  const double sum = std::accumulate(result.seconds.begin(), result.seconds.end(), 0.0);
  EXPECT_GE(result.elapsed, 0.05);
  EXPECT_LE(sum, result.elapsed * 1.0001);
}

TEST(Latency, SlowRunsEndBeforeTheLeastNumber) {
  int runs = 0;
  const Latencies result = MeasureLatency(
      {[&] {
        ++runs;
        std::this_thread::sleep_for(milliseconds(20));
      }},
      {.seconds = 0.01, .runs = 1000, .max_seconds = 0.05, .warm_up = 0, .warm_up_runs = 0});
  EXPECT_GE(result.seconds.size(), 1u);
  EXPECT_LE(result.seconds.size(), 3u);
}

// Each client runs on a thread of its own at the same time as the others.
TEST(Latency, ClientsRunTogether) {
  std::atomic<int> inside{0}, most{0};
  const auto client = [&] {
    const int now = ++inside;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(milliseconds(5));
    --inside;
  };
  const Latencies result = MeasureLatency({client, client, client}, {.seconds = 0.1});
  EXPECT_EQ(most, 3);
  EXPECT_GE(result.seconds.size(), 10u);
}

TEST(Latency, AnErrorOfAClientEndsAll) {
  std::atomic<int> runs{0};
  const auto fails = [&] {
    if (++runs > 5) ThrowInvalid("no more");
  };
  EXPECT_THROW(MeasureLatency({fails}, {.seconds = 60}), Error);
  runs = 0;
  EXPECT_THROW(MeasureLatency({fails, fails}, {.seconds = 60}), Error);
  runs = 5;  // already while they warm up
  EXPECT_THROW(MeasureLatency({fails, fails}, {.seconds = 60}), Error);
}

TEST(Latency, SecondsThatAreNoneAreRefused) {
  for (const double seconds : {-1.0, std::nan("")}) {
    EXPECT_NE(ErrorOf([&] {
                MeasureLatency({[] {}}, {.seconds = seconds});
              }).find("seconds to measure must not be negative"),
              std::string::npos);
    EXPECT_NE(ErrorOf([&] {
                Percentile({1, 2}, seconds);
              }).find("a percentile must lie in [0, 100]"),
              std::string::npos);
  }
}

}  // namespace coracle::latency_test
