#include <coracle/distribute/step_forecast.h>
#include <gtest/gtest.h>

namespace coracle {
namespace {

TEST(StepForecast, AllReduceIsTheBetterOfRingAndTree) {
  const Network network{1e-3, 1e6};
  EXPECT_EQ(AllReduceSeconds(1000, 1, network), 0);
  // Ring: 2 (1 + 0.5) ms; tree: 2 (1 + 1) ms.
  EXPECT_NEAR(AllReduceSeconds(1000, 2, network), 3e-3, 1e-12);
  // Of few bytes on eight ranks the tree, 6 messages, is ahead of the ring's 14.
  EXPECT_NEAR(AllReduceSeconds(8, 8, network), 6 * (1e-3 + 8e-6), 1e-12);
  // Of many the ring: 14 (1 + 1000) ms against 6 (1 + 8000).
  EXPECT_NEAR(AllReduceSeconds(8000000, 8, network), 14 * (1e-3 + 1), 1e-9);
}

// Gradients of 1 MB, complete after 1, 2, 3 s, needed at 3, 3.5, 3.5 s; an exchange takes 1 s for
// each MB, with two ranks and no latency.
StepTimeline Step() {
  return {{{"a", 1000000, 1, 3}, {"b", 1000000, 2, 3.5}, {"c", 1000000, 3, 3.5}}, 4};
}

TEST(StepForecast, ExchangesGoOnBesideOps) {
  const Network network{0, 1e6};
  // a 1 to 2, b 2 to 3, c 3 to 4: at 3.5 half a second is waited.
  const StepForecast each = ForecastStep(Step(), 2, 0, network);
  EXPECT_NEAR(each.exchanges, 3, 1e-12);
  EXPECT_NEAR(each.exposed, 0.5, 1e-12);
  EXPECT_NEAR(each.seconds, 4.5, 1e-12);
  // a and b 2 to 4, c 4 to 5: at 3 one second is waited, at 3.5 + 1 half a second.
  EXPECT_NEAR(ForecastStep(Step(), 2, 2, network).exposed, 1.5, 1e-12);
  // All 3 to 6.
  EXPECT_NEAR(ForecastStep(Step(), 2, 25, network).exposed, 3, 1e-12);
  EXPECT_NEAR(ForecastStep(Step(), 1, 25, network).seconds, 4, 1e-12);
}

}  // namespace
}  // namespace coracle
