// The host-side scaler: published traces and transitions of torch.amp.GradScaler, and what that
// one gets wrong.

#include <coracle/optimizer/mixed_precision.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace coracle::grad_scaler_test {

constexpr float kInf = std::numeric_limits<float>::infinity();

void ExpectError(const std::string& text, const std::function<void()>& f) {
  const std::string message = ErrorOf(f);
  EXPECT_NE(message.find(text), std::string::npos) << "got: " << message;
}

Tensor One() { return Tensor::Of<float>({1}, {1}); }

// One step of one optimizer; returns whether it was made.
bool Step(GradScaler& scaler, bool overflow) {
  Tensor grad = scaler.Scale(One());
  if (overflow) grad.data<float>()[0] = kInf;
  bool stepped = false;
  EXPECT_EQ(scaler.Step("a", {&grad}, [&] { stepped = true; }), !overflow);
  EXPECT_EQ(stepped, !overflow);
  if (!overflow) {
    EXPECT_NEAR(grad.Item<float>(), 1, 1e-5);
  }
  scaler.Update();
  return stepped;
}

TEST(GradScaler, TorchTrace) {
  GradScaler scaler({.init_scale = 8, .growth_interval = 3});
  std::vector<double> scales, good;
  for (bool overflow : {false, false, false, false, false, true, false, false, false, true, true}) {
    Step(scaler, overflow);
    scales.push_back(scaler.scale());
    good.push_back(scaler.SaveState().at("good_steps"));
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 16, 16, 16, 8, 8, 8, 16, 8, 4}));
  EXPECT_EQ(good, (std::vector<double>{1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0}));
}

// The cap is applied in Update: what is read, logged and saved never exceeds it.
TEST(GradScaler, MaxClipTrace) {
  GradScaler scaler({.init_scale = 3, .growth_interval = 2, .max_scale = 20});
  std::vector<double> used, after;
  for (int step = 1; step <= 14; ++step) {
    used.push_back(scaler.scale());
    Step(scaler, step == 11);
    after.push_back(scaler.SaveState().at("scale"));
    EXPECT_EQ(scaler.SaveState().at("growth_factor"), 2);  // the original's is 1 at the cap
  }
  // The original's is 24 once, after step 6.
  EXPECT_EQ(after, (std::vector<double>{3, 6, 6, 12, 12, 20, 20, 20, 20, 20, 10, 10, 20, 20}));
  EXPECT_EQ(used, (std::vector<double>{3, 3, 6, 6, 12, 12, 20, 20, 20, 20, 20, 10, 10, 20}));
  // The original crashed with this, and grew by 2 whatever the factor.
  ExpectError("init_scale <= max_scale", [] { GradScaler({.init_scale = 40, .max_scale = 20}); });
  GradScaler thrice({.init_scale = 2, .growth_factor = 3, .growth_interval = 1, .max_scale = 20});
  Step(thrice, false);
  EXPECT_EQ(thrice.scale(), 6);
}

TEST(GradScaler, FloorCapAndNoInfinity) {
  GradScaler scaler({.init_scale = 4, .min_scale = 2, .max_skipped = 0});
  for (int i = 0; i < 5; ++i) Step(scaler, true);
  EXPECT_EQ(scaler.scale(), 2);
  GradScaler huge({.init_scale = 3e38, .growth_interval = 1});
  Step(huge, false);
  EXPECT_EQ(huge.scale(), double{3e38f});
}

TEST(GradScaler, StaticScaleStays) {
  GradScaler scaler({.init_scale = 0.5, .growth_interval = 1, .dynamic = false});
  for (bool overflow : {false, true, true, false}) {
    Step(scaler, overflow);
    EXPECT_EQ(scaler.scale(), 0.5);
  }
}

TEST(GradScaler, StopsWithoutUsableScale) {
  GradScaler scaler({.init_scale = 4, .min_scale = 1, .max_skipped = 5});
  for (int i = 0; i < 4; ++i) Step(scaler, true);
  ExpectError("no usable loss scale is left: the last 5 steps in a row were skipped",
              [&] { Step(scaler, true); });
}

// A is skipped, B steps, and the scale backs off once.
TEST(GradScaler, OptimizersAreSkippedOneByOne) {
  GradScaler scaler({.init_scale = 16});
  for (bool both : {false, true}) {
    const double before = scaler.scale();
    Tensor a = scaler.Scale(One()), b = scaler.Scale(One());
    a.data<float>()[0] = std::nanf("");
    if (both) b.data<float>()[0] = kInf;
    bool stepped_a = false, stepped_b = false;
    scaler.Step("a", {&a}, [&] { stepped_a = true; });
    scaler.Step("b", {&b}, [&] { stepped_b = true; });
    scaler.Update();
    EXPECT_FALSE(stepped_a);
    EXPECT_EQ(stepped_b, !both);
    EXPECT_EQ(scaler.scale(), before / 2);
  }
}

TEST(GradScaler, WrongOrder) {
  GradScaler scaler;
  Tensor grad = One();
  const auto step = [] {};
  ExpectError("Unscale() before any Scale()", [&] { scaler.Unscale("a", {&grad}); });
  ExpectError("Step() before any Scale()", [&] { scaler.Step("a", {&grad}, step); });
  ExpectError("Update() before any Scale()", [&] { scaler.Update(); });
  grad = scaler.Scale(grad);
  ExpectError("no overflow was looked for", [&] { scaler.Update(); });
  ExpectError("has no gradients", [&] { scaler.Step("a", {}, step); });
  scaler.Unscale("a", {&grad});
  ExpectError("Unscale('a') has been called already", [&] { scaler.Unscale("a", {&grad}); });
  scaler.Step("a", {&grad}, step);
  ExpectError("Step('a') has been called already", [&] { scaler.Step("a", {&grad}, step); });
  ExpectError("Unscale('a') is called after Step()", [&] { scaler.Unscale("a", {&grad}); });
  Tensor other = scaler.Scale(One());
  scaler.Unscale("b", {&other});  // another optimizer has its own order
  scaler.Update();
  grad = scaler.Scale(One());
  scaler.Unscale("a", {&grad});  // and each begins anew
  Tensor half = One().Cast(DType::kFloat16);
  ExpectError("must be float32 or float64", [&] { scaler.Unscale("c", {&half}); });
}

// Unscale once, clip, step: as without scaling, bit by bit for a power of two.
TEST(GradScaler, UnscaleClipStep) {
  GradScaler scaler({.init_scale = 1024});
  Tensor grad = Tensor::Of<float>({3}, {0.3f, -4.f, 0.7f});
  Tensor scaled = scaler.Scale(grad);
  scaler.Unscale("a", {&scaled});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(scaled.data<float>()[i], grad.data<float>()[i]);
    scaled.data<float>()[i] = std::min(1.f, std::max(-1.f, scaled.data<float>()[i]));
  }
  EXPECT_TRUE(scaler.Step("a", {&scaled}, [] {}));
  EXPECT_EQ(scaled.data<float>()[1], -1);
}

// torch looks at the gradients in unscale_ alone: what a clip makes of them afterwards passes.
TEST(GradScaler, NonFiniteAfterUnscaleIsSeen) {
  GradScaler scaler({.init_scale = 8});
  Tensor grad = scaler.Scale(One());
  scaler.Unscale("a", {&grad});
  grad.data<float>()[0] *= kInf;
  EXPECT_FALSE(scaler.Step("a", {&grad}, [] {}));
  scaler.Update();
  EXPECT_EQ(scaler.scale(), 4);
}

// torch looks at the scaled gradient: with a scale below 1 the division can overflow unseen.
TEST(GradScaler, OverflowOfTheDivisionIsSeen) {
  GradScaler scaler({.init_scale = 0.5, .min_scale = 0});
  scaler.Scale(One());
  Tensor grad = Tensor::Of<float>({1}, {3e38f});
  EXPECT_FALSE(scaler.Step("a", {&grad}, [] {}));
}

TEST(GradScaler, StateInMidInterval) {
  const GradScalerOptions options = {.init_scale = 8, .growth_interval = 3, .hysteresis = 2};
  GradScaler first(options), whole(options);
  const bool overflows[] = {false, true, false, false, true, false, false, false, true};
  for (int i = 0; i < 4; ++i) {
    Step(first, overflows[i]);
    Step(whole, overflows[i]);
  }
  GradScaler second(options);
  second.LoadState(first.SaveState());
  for (int i = 4; i < 9; ++i) {
    Step(second, overflows[i]);
    Step(whole, overflows[i]);
    EXPECT_EQ(second.SaveState(), whole.SaveState()) << i;
  }
  ExpectError("has no growth_factor", [&] { second.LoadState({}); });
  GradScaler::State state = whole.SaveState();
  state["good_steps"] = -1;
  ExpectError("good_steps must be a count", [&] { second.LoadState(state); });
}

TEST(GradScaler, DisabledChangesNothing) {
  GradScaler scaler({.enabled = false});
  Tensor grad = Tensor::Of<float>({1}, {0.1f});
  const Tensor scaled = scaler.Scale(grad);
  EXPECT_EQ(scaled.raw(), grad.raw());
  grad.data<float>()[0] = kInf;
  scaler.Unscale("a", {&grad});
  bool stepped = false;
  EXPECT_TRUE(scaler.Step("a", {&grad}, [&] { stepped = true; }));
  EXPECT_TRUE(stepped);
  scaler.Update();
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_TRUE(scaler.SaveState().empty());
}

TEST(GradScaler, OptionsAndSettersAreChecked) {
  ExpectError("growth_factor must be above 1 and at most 3.40282e+38, got 1",
              [] { GradScaler({.growth_factor = 1}); });
  ExpectError("backoff_factor", [] { GradScaler({.backoff_factor = 1}); });
  ExpectError("backoff_factor", [] { GradScaler({.backoff_factor = 0}); });
  ExpectError("growth_interval", [] { GradScaler({.growth_interval = 0}); });
  ExpectError("init_scale", [] { GradScaler({.init_scale = std::nan("")}); });
  ExpectError("min_scale", [] { GradScaler({.init_scale = 2, .min_scale = 4}); });
  GradScaler scaler;
  ExpectError("growth_factor", [&] { scaler.SetGrowthFactor(1); });  // torch's setters take all
  ExpectError("backoff_factor", [&] { scaler.SetBackoffFactor(2); });
  ExpectError("growth_interval", [&] { scaler.SetGrowthInterval(0); });
  EXPECT_EQ(scaler.options().growth_factor, 2);
  Step(scaler, false);
  scaler.Scale(One());
  scaler.Update(512);
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_EQ(scaler.SaveState().at("good_steps"), 1);  // the count of clean steps stays
  ExpectError("new scale", [&] { scaler.Update(0); });
  EXPECT_EQ(scaler.Scale(One().Cast(DType::kFloat16)).dtype(), DType::kFloat16);
  EXPECT_EQ(scaler.Scale(Tensor::Of<double>({1}, {0.1})).Item<double>(), 0.1 * 512);
}
}  // namespace coracle::grad_scaler_test
