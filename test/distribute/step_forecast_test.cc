#include <coracle/distribute/step_forecast.h>
#include <gtest/gtest.h>

namespace coracle::step_forecast_test {

using Kind = Exchange::Kind;

TEST(StepForecast, AllReduceIsTheBetterOfRingAndTree) {
  const Network network{1e-3, 1e6};
  EXPECT_EQ(ExchangeSeconds(Kind::kAllReduce, 1000, 1, network), 0);
  // Ring: 2 (1 + 0.5) ms; tree: 2 (1 + 1) ms.
  EXPECT_NEAR(ExchangeSeconds(Kind::kAllReduce, 1000, 2, network), 3e-3, 1e-12);
  // Of few bytes on eight ranks the tree, 6 messages, is ahead of the ring's 14.
  EXPECT_NEAR(ExchangeSeconds(Kind::kAllReduce, 8, 8, network), 6 * (1e-3 + 8e-6), 1e-12);
  // Of many the ring: 14 (1 + 1000) ms against 6 (1 + 8000).
  EXPECT_NEAR(ExchangeSeconds(Kind::kAllReduce, 8000000, 8, network), 14 * (1e-3 + 1), 1e-9);
}

TEST(StepForecast, OtherExchanges) {
  const Network network{1e-3, 1e6};
  // Three messages; seven parts of 1000 bytes come in.
  EXPECT_NEAR(ExchangeSeconds(Kind::kAllGather, 1000, 8, network), 3e-3 + 7e-3, 1e-12);
  // Seven eighths of 8000 bytes go out.
  EXPECT_NEAR(ExchangeSeconds(Kind::kReduceScatter, 8000, 8, network), 3e-3 + 7e-3, 1e-12);
  EXPECT_NEAR(ExchangeSeconds(Kind::kBroadcast, 1000, 5, network), 3 * 2e-3, 1e-12);
  EXPECT_NEAR(ExchangeSeconds(Kind::kBarrier, 0, 5, network), 3e-3, 1e-12);
}

TEST(StepForecast, AddingTakesTime) {
  const Network network{1e-3, 1e6, {.adding = 2e-6}};  // 2 ms for 1000 bytes
  // Ring: each of two ranks adds half of them.
  EXPECT_NEAR(ExchangeSeconds(Kind::kAllReduce, 1000, 2, network), 3e-3 + 1e-3, 1e-12);
  // Tree: all of them three times.
  EXPECT_NEAR(ExchangeSeconds(Kind::kAllReduce, 8, 8, network), 6 * (1e-3 + 8e-6) + 3 * 16e-6,
              1e-12);
  EXPECT_NEAR(ExchangeSeconds(Kind::kReduceScatter, 8000, 8, network), 10e-3 + 14e-3, 1e-12);
  EXPECT_NEAR(ExchangeSeconds(Kind::kAllGather, 1000, 8, network), 10e-3, 1e-12);
  EXPECT_EQ(ExchangeSeconds(Kind::kAllReduce, 1000, 1, network), 0);
}

StepTimeline::Part Gradient(const std::string& name, double begins, double needed) {
  return {Kind::kAllReduce, name, 1000000, begins, needed, true};
}

// Gradients of 1 MB, complete after 1, 2, 3 s, needed at 3, 3.5, 3.5 s; an exchange takes 1 s for
// each MB, with two ranks and no latency, and 16 us for the meeting before it.
StepTimeline Step() {
  return {{Gradient("a", 1, 3), Gradient("b", 2, 3.5), Gradient("c", 3, 3.5)}, 4};
}
constexpr double kMeeting = 16e-6;

TEST(StepForecast, ExchangesGoOnBesideOps) {
  const Network network{0, 1e6};
  // a 1 to 2, b 2 to 3, c 3 to 4: at 3.5 half a second is waited.
  const StepForecast each = ForecastStep(Step(), 2, 0, network);
  EXPECT_NEAR(each.exchanges, 3 + 3 * kMeeting, 1e-12);
  EXPECT_NEAR(each.exposed, 0.5 + 3 * kMeeting, 1e-12);
  EXPECT_NEAR(each.seconds, 4.5 + 3 * kMeeting, 1e-12);
  // a and b 2 to 4, c 4 to 5: at 3 one second is waited, at 3.5 + 1 half a second.
  EXPECT_NEAR(ForecastStep(Step(), 2, 2, network).exposed, 1.5 + 2 * kMeeting, 1e-12);
  // All 3 to 6.
  EXPECT_NEAR(ForecastStep(Step(), 2, 25, network).exposed, 3 + kMeeting, 1e-12);
  EXPECT_NEAR(ForecastStep(Step(), 1, 25, network).seconds, 4, 1e-12);
}

TEST(StepForecast, WorkOfARankForItsExchanges) {
  // Of each exchange 0.01 s, and of a byte that is packed 0.1 us.
  const Network network{0, 1e6, {.handover = 0.01, .packing = 1e-7}};
  // a 1 to 2.01, b to 3.02, c to 4.03: at 3.5 the rest is waited.
  EXPECT_NEAR(ForecastStep(Step(), 2, 0, network).exposed, 0.53 + 3 * kMeeting, 1e-12);
  EXPECT_NEAR(ForecastStep(Step(), 2, 0, network).exchanges, 3.03 + 3 * kMeeting, 1e-12);
  // All 3 to 6: they are too large to be packed.
  EXPECT_NEAR(ForecastStep(Step(), 2, 25, network).exposed, 3.01 + kMeeting, 1e-12);
  EXPECT_EQ(ForecastStep(Step(), 1, 25, network).exchanges, 0);
  EXPECT_EQ(ForecastStep(Step(), 1, 25, network).seconds, 4);
}

// Small gradients of a bucket are one message, large ones are messages of their own.
TEST(StepForecast, MessagesOfABucket) {
  const Network network{0.01, 1e6, {.packing = 1e-5}};
  StepTimeline step = Step();
  step.exchanges[0].bytes = 100000;
  step.exchanges[2].bytes = 30000;
  // 130,000 bytes, packed in 1.3 s, and 1,000,000; two messages of half the bytes each.
  EXPECT_NEAR(ForecastStep(step, 2, 25, network).exchanges,
              1.3 + (0.02 + 0.13) + (0.02 + 1) + (0.02 + kMeeting), 1e-12);
  // Alone in its bucket a small one is not packed.
  EXPECT_NEAR(ForecastStep(step, 2, 0, network).exchanges,
              (0.02 + 0.1) + (0.02 + 1) + (0.02 + 0.03) + 3 * (0.02 + kMeeting), 1e-12);
}

// Without a core for the exchanges ops wait for all of them.
TEST(StepForecast, ExchangesThatTakeTheCoresOfOps) {
  const Network network{0, 1e6, {.beside_ops = false}};
  EXPECT_NEAR(ForecastStep(Step(), 2, 0, network).exposed, 3 + 3 * kMeeting, 1e-12);
  EXPECT_NEAR(ForecastStep(Step(), 2, 25, network).exposed, 3 + kMeeting, 1e-12);
}

TEST(StepForecast, ExpectedMaximum) {
  const std::vector<double> values = {4, 1, 2};
  EXPECT_NEAR(ExpectedMaximum(values, 1), 7.0 / 3, 1e-12);
  // Of the nine pairs one has the maximum 1, three have 2, and five have 4.
  EXPECT_NEAR(ExpectedMaximum(values, 2), (1 + 3 * 2 + 5 * 4) / 9.0, 1e-12);
  // Of 27 triples 1, 7 and 19.
  EXPECT_NEAR(ExpectedMaximum(values, 3), (1 + 7 * 2 + 19 * 4) / 27.0, 1e-12);
  EXPECT_NEAR(ExpectedMaximum(values, 1000000), 4, 1e-12);
  EXPECT_NEAR(ExpectedMaximum({3}, 5), 3, 1e-12);
}

TEST(StepForecast, StepsLastAsLongAsThatOfTheSlowestRank) {
  const Network network{0, 1e6};
  StepTimeline step = Step();
  step.measured = {8, 4};
  // Of one rank the mean; of two 4 in one of four cases, else 8: 7, which is 7/4 of the timeline.
  // There a is exchanged 1.75 to 2.75, b 3.5 to 4.5, and c 5.25 to 6.25, needed at 6.125.
  const StepForecast one = ForecastStep(step, 1, 0, network);
  EXPECT_NEAR(one.seconds, 6, 1e-12);
  EXPECT_NEAR(one.later, 0, 1e-12);
  const StepForecast two = ForecastStep(step, 2, 0, network);
  EXPECT_NEAR(two.later, 1, 1e-12);
  EXPECT_NEAR(two.exposed, 0.125 + kMeeting, 1e-12);
  EXPECT_NEAR(two.seconds, 7.125 + kMeeting, 1e-12);
}

// Gradients that are scattered have buckets of their own, beside those of sums; all of one is
// packed.
TEST(StepForecast, BucketsThatAreScattered) {
  const Network network{0.01, 1e6, {.handover = 0.1, .packing = 1e-6}};
  StepTimeline step = Step();
  step.exchanges[0].kind = step.exchanges[2].kind = Kind::kReduceScatter;
  step.exchanges[2].bytes = 100000;
  // a and c are one exchange at 3 of 1,100,000 bytes, packed in 1.1 s, half of which go out in
  // 0.55; b is one at 2 of its 1,000,000 bytes. Before either a meeting, of two messages.
  const double scatter = 0.1 + 1.1 + (0.01 + 0.55) + (0.02 + kMeeting);
  const double sum = 0.1 + (0.02 + 1) + (0.02 + kMeeting);
  const StepForecast all = ForecastStep(step, 2, 25, network);
  EXPECT_NEAR(all.exchanges, scatter + sum, 1e-12);
  // a is needed at 3, when all of it begins: b is done at 2 + sum, and then a and c.
  EXPECT_NEAR(all.exposed, sum - 1 + scatter, 1e-12);
  // Each by itself is packed, too.
  const double a = 0.1 + 1 + (0.01 + 0.5) + (0.02 + kMeeting);
  const double c = 0.1 + 0.1 + (0.01 + 0.05) + (0.02 + kMeeting);
  EXPECT_NEAR(ForecastStep(step, 2, 0, network).exchanges, a + sum + c, 1e-12);
  // Buckets of 1 MB: that of a is full at once, whatever that of b is.
  EXPECT_NEAR(ForecastStep(step, 2, 1, network).exchanges, a + sum + c, 1e-12);
}

// What is not in buckets is exchanged by itself, in its turn, whatever the size of buckets.
TEST(StepForecast, ExchangesOutsideOfBuckets) {
  const Network network{0, 1e6};
  StepTimeline step = Step();
  // The rows of 2 MB are exchanged at 2.5, while b is (0 latency: 2 to 3): 3 to 5, all but half a
  // second of which is waited for.
  step.exchanges.insert(step.exchanges.begin() + 2,
                        {Kind::kAllGather, "rows", 2000000, 2.5, 2.5, false});
  EXPECT_NEAR(ForecastStep(step, 2, 0, network).exposed, 2.5 + 0.5 + 4 * kMeeting, 1e-9);
  // a, b and c together behind the rows: 2.5 to 4.5 and 5 to 8.
  EXPECT_NEAR(ForecastStep(step, 2, 25, network).exposed, 2 + 3 + 2 * kMeeting, 1e-9);
}
}  // namespace coracle::step_forecast_test
