// Learning-rate schedules: values known from their sources, and ops in programs against the host.

#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/optimizer/lr_schedule.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace coracle::lr_schedule_test {

// Relative to the value, unless that is 0.
void ExpectRate(const LrSchedulePtr& schedule, int64_t t, double expected,
                double tolerance = 1e-8) {
  EXPECT_NEAR(schedule->At(t), expected, tolerance * (expected == 0 ? 1 : std::abs(expected)))
      << "at step " << t;
}

// Caffe's policies with its own values (base 0.01).
TEST(LrSchedule, Caffe) {
  ExpectRate(FixedRate(0.01), 12345, 0.01);
  const auto step = StepRate({0.01, 0.1, 100});
  ExpectRate(step, 0, 0.01);
  ExpectRate(step, 99, 0.01);
  ExpectRate(step, 100, 0.001);
  ExpectRate(step, 200, 1e-4);
  ExpectRate(ExponentialRate({0.01, 0.999}), 1000, 0.00367695425);
  const auto inv = InvRate({0.01, 1e-4, 0.75});
  ExpectRate(inv, 0, 0.01);
  ExpectRate(inv, 100, 0.00992565029);
  ExpectRate(inv, 1000, 0.00931012445);
  const auto poly = PolynomialRate({0.01, 1000, 0, 0.75});
  ExpectRate(poly, 500, 0.00594603558);
  ExpectRate(poly, 1000, 0);
  ExpectRate(poly, 5000, 0);  // Caffe: nan
  const auto sigmoid = SigmoidRate({0.01, 0.05, 100});
  ExpectRate(sigmoid, 0, 6.69285092e-5);
  ExpectRate(sigmoid, 100, 0.005);
  ExpectRate(sigmoid, 200, 0.00993307149);
  EXPECT_LT(SigmoidRate({0.01, -0.05, 100})->At(200), 1e-3);
  const auto multistep = MultiStepRate({0.01, 0.5, {50, 150, 300}});
  for (auto [t, rate] : {std::pair(0, 0.01),
                         {49, 0.01},
                         {50, 0.005},
                         {149, 0.005},
                         {150, 0.0025},
                         {299, 0.0025},
                         {300, 0.00125},
                         {9999, 0.00125}})
    ExpectRate(multistep, t, rate);
  // Two milestones at one step count both, at once.
  ExpectRate(MultiStepRate({1, 0.5, {10, 10}}), 10, 0.25);
}

TEST(LrSchedule, WarmupStableDecay) {
  const auto make = [](int64_t warmup, int64_t decay, int64_t steps) {
    return MakeLrSchedule({"warmup_stable_decay",
                           {{"rate", 0.8},
                            {"warmup_steps", warmup},
                            {"decay_steps", decay},
                            {"steps", steps},
                            {"end", 0.2}}});
  };
  const auto schedule = make(4, 3, 10);
  for (auto [t, rate] : {std::pair(0, 0.2),
                         {1, 0.4},
                         {3, 0.8},
                         {4, 0.8},
                         {7, 0.8},
                         {8, 0.6},
                         {9, 0.4},
                         {10, 0.2},
                         {99, 0.2}})
    ExpectRate(schedule, t, rate);
  EXPECT_THROW(make(8, 3, 10), Error);
  EXPECT_NO_THROW(make(7, 3, 10));
  EXPECT_THROW(make(0, 3, 10), Error);
  EXPECT_THROW(
      MakeLrSchedule(
          {"warmup_stable_decay",
           {{"warmup_steps", int64_t{1}}, {"decay_steps", int64_t{1}}, {"steps", int64_t{9}}}}),
      Error);  // no rate
}

TEST(LrSchedule, Paddle) {
  // noam: d_model 64, warm-up 4: 1/8 min(n^-1/2, n / 8).
  const auto noam = NoamRate({64, 4});
  ExpectRate(noam, 0, 1.0 / 64);
  ExpectRate(noam, 3, 1.0 / 16);
  ExpectRate(noam, 15, 1.0 / 32);
  ExpectRate(ExponentialRate({0.1, 0.25, 10}), 5, 0.05);
  ExpectRate(ExponentialRate({0.1, 0.25, 10, true}), 19, 0.025);
  ExpectRate(NaturalExpRate({0.1, 0.5, 10}), 20, 0.1 * std::exp(-1));
  ExpectRate(NaturalExpRate({0.1, 0.5, 10, true}), 19, 0.1 * std::exp(-0.5));
  ExpectRate(InverseTimeRate({0.1, 0.5, 10}), 20, 0.05);
  ExpectRate(InverseTimeRate({0.1, 0.5, 10, true}), 39, 0.04);
  const auto cycle = PolynomialRate({0.1, 10, 0.01, 1, true});
  ExpectRate(cycle, 0, 0.1);
  ExpectRate(cycle, 5, 0.055);
  ExpectRate(cycle, 10, 0.01);
  ExpectRate(cycle, 15, 0.1 - 0.09 * 0.75);  // of 20
  ExpectRate(PolynomialRate({0.1, 10, 0.01, 2}), 5, 0.09 / 4 + 0.01);
  const auto piecewise = PiecewiseRate({{10, 20}, {1, 0.5, 0.1}});
  ExpectRate(piecewise, 9, 1);
  ExpectRate(piecewise, 10, 0.5);
  ExpectRate(piecewise, 20, 0.1);
  const auto cosine = CosineRate({0.1, 10, 4});
  ExpectRate(cosine, 9, 0.1);
  ExpectRate(cosine, 10, 0.05 * (1 + std::sqrt(0.5)));
  ExpectRate(cosine, 25, 0.05);
  const auto warmup = WarmupRate(StepRate({0.1, 0.1, 10}), 4, 0.02, 0.1);
  ExpectRate(warmup, 0, 0.02);
  ExpectRate(warmup, 3, 0.08);
  ExpectRate(warmup, 4, 0.1);
  ExpectRate(warmup, 10, 0.01);
}

// Paddle's recursive form of cosine annealing gives the values of the closed one.
TEST(LrSchedule, CosineAnnealingIsTheRecursion) {
  const double rate = 0.1, end = 0.01, steps = 8;
  const auto schedule = CosineAnnealingRate({rate, 8, end});
  double lr = rate;
  for (int e = 0; e < 40; ++e) {
    if (e > 0) {
      if (std::fmod(e - 1 - steps, 2 * steps) == 0)
        lr += (rate - end) * (1 - std::cos(M_PI / steps)) / 2;
      else
        lr =
            (1 + std::cos(M_PI * e / steps)) / (1 + std::cos(M_PI * (e - 1) / steps)) * (lr - end) +
            end;
    }
    ExpectRate(schedule, e, lr, 1e-9);
  }
}

TEST(LrSchedule, Cycles) {
  const auto restarts = CosineRestartsRate({1, 4, 1, 0.2});
  for (int64_t t : {0, 4, 8, 400}) ExpectRate(restarts, t, 1);
  ExpectRate(restarts, 6, 0.6);
  // 4, 8, 16 ... steps: restarts at 4, 12, 28, 60, ...
  const auto doubling = CosineRestartsRate({1, 4, 2});
  for (int64_t t : {0, 4, 12, 28, 60, 124, 252}) ExpectRate(doubling, t, 1);
  ExpectRate(doubling, 8, 0.5);
  ExpectRate(doubling, 20, 0.5);
  const auto tripling = CosineRestartsRate({1, 2, 3});  // at 2, 8, 26, 80, 242
  for (int64_t t : {2, 8, 26, 80, 242}) ExpectRate(tripling, t, 1);

  CyclicOptions o = {.base = 0.1, .peak = 0.5, .step_up = 4};
  for (auto [t, rate] : {std::pair(0, 0.1), {2, 0.3}, {4, 0.5}, {6, 0.3}, {8, 0.1}, {12, 0.5}})
    ExpectRate(CyclicRate(o), t, rate);
  o.shrink = 0.5;
  ExpectRate(CyclicRate(o), 4, 0.5);
  ExpectRate(CyclicRate(o), 12, 0.3);
  o = {.base = 0.1, .peak = 0.5, .step_up = 2, .step_down = 8, .gamma = 0.5};
  ExpectRate(CyclicRate(o), 2, 0.1 + 0.4 * 0.25);
  ExpectRate(CyclicRate(o), 6, 0.1 + 0.4 * 0.5 / 64);

  const auto one = OneCycleRate({1, 101, 0.3, 25, 100});  // the peak is at 0.3 * 101 - 1 = 29.3
  ExpectRate(one, 0, 0.04);
  ExpectRate(one, 100, 0.0004);
  ExpectRate(one, 100000, 0.0004);
  ExpectRate(one, 29, 0.04 + 0.96 * (1 - std::cos(M_PI * 29 / 29.3)) / 2);
  ExpectRate(one, 64, 0.0004 + 0.9996 * (1 + std::cos(M_PI * 34.7 / 70.7)) / 2);
}

TEST(LrSchedule, SequenceCountsFromEachFirst) {
  const auto schedule =
      SequenceRate({{0, FixedRate(0.5)}, {10, StepRate({0.1, 0.1, 5})}, {20, FixedRate(0.25)}});
  for (auto [t, rate] : {std::pair(0, 0.5), {9, 0.5}, {10, 0.1}, {14, 0.1}, {15, 0.01}, {20, 0.25}})
    ExpectRate(schedule, t, rate);
}

std::vector<LrSchedulePtr> All() {
  return {
      FixedRate(0.01),
      StepRate({0.01, 0.3, 7}),
      ExponentialRate({0.01, 0.97}),
      NaturalExpRate({0.1, 0.3, 5, true}),
      InverseTimeRate({0.1, 0.5, 10}),
      InvRate({0.01, 1e-2, 0.75}),
      MultiStepRate({0.1, 0.5, {5, 20, 20, 31}}),
      PiecewiseRate({{3, 30}, {0.3, 0.2, 0.1}}),
      PolynomialRate({0.1, 25, 0.001, 1.5}),
      PolynomialRate({0.1, 11, 0.001, 0.5, true}),
      SigmoidRate({0.1, -0.3, 20}),
      NoamRate({32, 10}),
      CosineRate({0.1, 3, 9}),
      CosineAnnealingRate({0.1, 12, 0.01}),
      CosineRestartsRate({0.1, 5}),
      CosineRestartsRate({0.1, 3, 2, 0.01}),
      CyclicRate(
          {.base = 0.1, .peak = 0.9, .step_up = 4, .step_down = 6, .shrink = 0.5, .gamma = 0.99}),
      OneCycleRate({0.5, 40}),
      WarmupRate(CosineAnnealingRate({0.1, 30}), 10, 0.001, 0.1),
      SequenceRate(
          {{0, WarmupRate(FixedRate(0.1), 5, 0, 0.1)}, {5, PolynomialRate({0.1, 20, 0, 2})}})};
}

TEST(LrSchedule, OpsGiveTheHostsValues) {
  for (size_t k = 0; k < All().size(); ++k) {
    const LrSchedulePtr schedule = All()[k];
    ProgramDesc main, startup;
    const std::string rate = AppendLrSchedule(*schedule, main.Root(), startup);
    VerifyOrThrow(main, DefaultOps());
    Scope scope;
    Executor executor;
    executor.Run(startup, scope);
    PreparedProgram prepared = executor.Prepare(main, {}, {rate});
    for (int64_t t = 0; t < 50; ++t) {
      const float got = prepared.Run(scope)[0].Item<float>();
      EXPECT_NEAR(got, schedule->At(t), 1e-6 * std::abs(schedule->At(t)) + 1e-12)
          << "schedule " << k << " at step " << t;
    }
    // The counter alone is the state: far past the end all is finite.
    for (int64_t t : {int64_t{1000}, int64_t{1000000}, int64_t{1} << 40}) {
      scope.Set(kStepCounter, Tensor::Of<int64_t>({1}, {t - 1}));
      const float got = prepared.Run(scope)[0].Item<float>();
      EXPECT_TRUE(std::isfinite(got)) << "schedule " << k << " at step " << t;
      EXPECT_NEAR(got, schedule->At(t), 1e-6 * std::abs(schedule->At(t)) + 1e-12);
    }
  }
}

TEST(LrSchedule, AnOptimizerFollowsIt) {
  ProgramDesc main, startup;
  for (const char* name : {"w", "g"}) {
    VarDesc& var = main.Root().Var(name);
    var.SetShape({1});
    var.SetPersistable(true);
  }
  main.Root().FindVar("w")->SetIsParameter(true);
  Sgd sgd({.learning_rate = 100});
  sgd.SetSchedule(StepRate({0.5, 0.5, 2}));
  sgd.ApplyGradients(main.Root(), startup, {{"w", "g"}});
  Scope scope;
  Executor executor;
  executor.Run(startup, scope);
  scope.Set("w", Tensor::Of<float>({1}, {8}));
  scope.Set("g", Tensor::Of<float>({1}, {1}));
  PreparedProgram prepared = executor.Prepare(main);
  for (float expected : {7.5f, 7.0f, 6.75f, 6.5f, 6.375f}) {
    prepared.Run(scope);
    EXPECT_EQ(scope.Get("w").Item<float>(), expected);
  }
  // A second schedule shares the counter.
  const size_t before = main.Root().NumOps();
  AppendLrSchedule(*FixedRate(1), main.Root(), startup);
  size_t increments = 0;
  for (size_t i = 0; i < main.Root().NumOps(); ++i) {
    increments += main.Root().op(i).type() == "increment";
    if (i >= before) {
      EXPECT_EQ(main.Root().op(i).role(), kLRSched);
    }
  }
  EXPECT_EQ(increments, 1u);
}

// Marks in a file may be on any op; a schedule counts by itself then.
TEST(LrSchedule, DoesNotCountByForeignMarks) {
  const TrainingMark mark = {TrainingStage::kSchedule, TrainingPart::kCounter, ""};
  ProgramDesc main, startup;
  BlockDesc& root = main.Root();
  root.Var("h").SetMeta({VarType::kLoDTensor, DType::kFloat32, {2, 4}, 0});
  VarDesc& fives = root.Var("fives");
  fives.SetMeta({VarType::kLoDTensor, DType::kInt64, {1}, 0});
  fives.SetPersistable(true);
  SetMark(root.AppendOp("layer_norm", {{"X", {"h"}}}, {{"Y", {"h"}}}), mark);
  SetMark(root.AppendOp("relu", {{"X", {"h"}}}, {{"Out", {"h"}}}), mark);
  SetMark(root.AppendOp("increment", {{"X", {"fives"}}}, {{"Out", {"fives"}}}, {{"step", 5.0f}}),
          mark);
  AppendLrSchedule(*StepRate({0.5, 0.5, 2}), root, startup);
  const TrainingParts parts = PartsOf(main);
  ASSERT_EQ(parts.schedules.size(), 1u);
  EXPECT_EQ(parts.schedules[0].counter, kStepCounter);
}

TEST(LrSchedule, WrongArguments) {
  const double nan = std::nan("");
  EXPECT_THROW(FixedRate(-1), Error);
  EXPECT_THROW(FixedRate(nan), Error);
  EXPECT_THROW(StepRate({0.1, 0.1, 0}), Error);
  EXPECT_THROW(ExponentialRate({0.1, -0.5}), Error);
  EXPECT_THROW(NaturalExpRate({0.1, nan}), Error);
  EXPECT_THROW(InverseTimeRate({0.1, 0.1, -3}), Error);
  EXPECT_THROW(InvRate({0.1, -1, 0.5}), Error);
  EXPECT_THROW(MultiStepRate({0.1, 0.1, {5, 3}}), Error);
  EXPECT_THROW(PiecewiseRate({{1}, {0.1}}), Error);
  EXPECT_THROW(PolynomialRate({0.1, 0}), Error);
  EXPECT_THROW(SigmoidRate({0.1, nan, 3}), Error);
  EXPECT_THROW(NoamRate({0, 10}), Error);
  EXPECT_THROW(CosineRate({0.1, 0, 10}), Error);
  EXPECT_THROW(CosineAnnealingRate({0.1, 0}), Error);
  EXPECT_THROW(CosineRestartsRate({0.1, 3, 0}), Error);
  EXPECT_THROW(CyclicRate({.base = 0.1, .peak = 1, .step_up = 0}), Error);
  EXPECT_THROW(CyclicRate({}), Error);  // base and peak must be given
  EXPECT_THROW(CyclicRate({.base = 0.1}), Error);
  // An infinite factor begins, or ends, at 0.
  EXPECT_EQ(OneCycleRate({.peak = 1, .steps = 9, .start_factor = HUGE_VAL})->At(0), 0);
  EXPECT_NO_THROW(OneCycleRate({.peak = 1, .steps = 9, .end_factor = HUGE_VAL}));
  EXPECT_THROW(NoamRate({.d_model = HUGE_VAL, .warmup_steps = 2}), Error);
  try {
    PiecewiseRate({{3}, {0.1, -1}});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "learning-rate schedule piecewise: value must be finite and not negative, got -1");
  }
  const auto error = [](const MultiStepRateOptions& o) {
    return ErrorOf([&] { MultiStepRate(o); });
  };
  EXPECT_EQ(error({0.1, 0.1, {5, 3}}),
            "learning-rate schedule multistep: milestone must ascend from 0 on, got 3");
  EXPECT_EQ(error({1e300, 1e200, {4, 7}}),
            "learning-rate schedule multistep: gamma must leave the rate finite, got inf at "
            "milestone 4");
  EXPECT_EQ(ErrorOf([] {
              PiecewiseRate({{5, 3}, {1, 1, 1}});
            }),
            "learning-rate schedule piecewise: boundary must ascend from 0 on, got 3");
  EXPECT_THROW(OneCycleRate({0.1, 10, 1.5}), Error);
  EXPECT_THROW(WarmupRate(nullptr, 10, 0, 1), Error);
  EXPECT_THROW(SequenceRate({}), Error);
  EXPECT_THROW(SequenceRate({{1, FixedRate(1)}}), Error);
}

TEST(PlateauRate, Falls) {
  PlateauRate rate(
      1, {.factor = 0.5, .patience = 1, .threshold = 0.1, .cooldown = 1, .min_rate = 0.2});
  EXPECT_EQ(rate.Update(10), 1);
  EXPECT_EQ(rate.Update(8.9), 1);    // better by more than a tenth
  EXPECT_EQ(rate.Update(8.5), 1);    // bad 1
  EXPECT_EQ(rate.Update(8.4), 0.5);  // bad 2 > patience
  EXPECT_EQ(rate.Update(9), 0.5);    // cooldown
  EXPECT_EQ(rate.Update(9), 0.5);
  EXPECT_EQ(rate.Update(std::nan("")), 0.25);
  EXPECT_EQ(rate.Update(9), 0.25);
  EXPECT_EQ(rate.Update(9), 0.25);
  EXPECT_EQ(rate.Update(9), 0.2);  // the floor
  PlateauRate copy(
      1, {.factor = 0.5, .patience = 1, .threshold = 0.1, .cooldown = 1, .min_rate = 0.2});
  copy.SetState(rate.state());
  EXPECT_EQ(copy.Update(1), rate.Update(1));
}

// A value that is not finite is not an improvement, the first one included.
TEST(PlateauRate, OnlyNumbersAreBetter) {
  const double inf = std::numeric_limits<double>::infinity();
  PlateauRate rate(1, {.factor = 0.5, .patience = 0});
  EXPECT_EQ(rate.Update(-inf), 0.5);
  EXPECT_EQ(rate.Update(2), 0.5);
  EXPECT_EQ(rate.Update(-inf), 0.25);
  EXPECT_EQ(rate.Update(std::numeric_limits<double>::quiet_NaN()), 0.125);
  EXPECT_EQ(rate.Update(1), 0.125);
}

TEST(PlateauRate, MaximizeByAnAbsoluteThreshold) {
  PlateauRate rate(
      1, {.minimize = false, .factor = 0.1, .patience = 0, .threshold = 0.5, .relative = false});
  EXPECT_EQ(rate.Update(1), 1);
  EXPECT_EQ(rate.Update(1.6), 1);
  EXPECT_EQ(rate.Update(2), 0.1);
  EXPECT_NO_THROW(PlateauRate(1, {.threshold = HUGE_VAL}));
  try {
    PlateauRate(-1, {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "learning-rate schedule plateau: a rate must be finite and not negative, got -1");
  }
  EXPECT_THROW(PlateauRate(1, {.factor = 1}), Error);
  EXPECT_THROW(PlateauRate(1, {.patience = -1}), Error);
}
}  // namespace coracle::lr_schedule_test
